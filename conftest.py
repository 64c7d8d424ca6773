pytest_plugins = ["verification.pytest_plugin"]
