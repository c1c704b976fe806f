"""llama.cpp's own server with the embedded model's weights, on a port. Prints its address, and ends with its input."""

import sys
from importlib import import_module

xllamacpp = import_module("xllamacpp")  # has no types
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 512
params.n_parallel = 1
params.n_batch = params.n_ubatch = 32
params.verbosity = 1  # errors only
params.fit_params = params.ui = False
params.cache_ram_mib = 0
server = xllamacpp.Server(params)
sys.stdout.write(f"{server.listening_address}\n")
sys.stdout.flush()
sys.stdin.read()
