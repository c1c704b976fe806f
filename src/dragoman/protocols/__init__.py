"""One package for each protocol, and `kit` for what all share. A protocol never imports another one."""
