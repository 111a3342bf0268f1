"""headrace keeps the accelerator of an image model fed: server, doctor and bench in one package."""

__version__ = "0.1.0"
