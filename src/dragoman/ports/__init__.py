"""What the engine and the agents need from the outside world, as protocols: one module per subject.

Adapters (`stores`, `buses`, `models`) satisfy the protocols without inheriting from them, and one contract suite per
protocol tests them all. Pure: no module here does IO, and none knows an adapter.
"""
