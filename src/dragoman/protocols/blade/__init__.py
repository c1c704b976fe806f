"""Blade, over REST and Socket.IO. Its wire types are in `wire`, its view of a log in `projection`."""
