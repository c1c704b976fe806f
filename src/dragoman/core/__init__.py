"""The domain: sessions, runs, events, rules. Pure: no IO, no clock, no framework, no protocol's wire format."""
