"""The AG-UI run service: runs, event streams, history by day, uploads and links."""
