"""`python -m verso_standalone up | demo`: the commands without an installed `verso`."""

from verso_core.interpreter import loading

with loading():
    from verso_standalone.commands import app

if __name__ == "__main__":
    app()
