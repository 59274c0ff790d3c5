"""Run the engine: ``python -m verso_worker.engine``."""

from verso_core.interpreter import loading

with loading():
    from verso_worker.engine.main import main

if __name__ == "__main__":
    main()
