"""The rehearsal agent: plays a script from the user's message, without a model. For demonstrations and tests."""
