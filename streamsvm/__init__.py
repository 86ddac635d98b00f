"""Train support vector machines on data larger than memory, inside a memory budget you state.

The commands are functions with the same names and options: ``import streamsvm as sv``, then ``sv.ingest``, ``sv.fit``,
``sv.predict``. Importing the package imports no submodule; each name is imported when it is first used.
"""

from importlib import import_module as _import_module

__version__ = "0.1.0"

_PUBLIC_NAMES = {
    "streamsvm.api.functions": (
        "embed",
        "evaluate",
        "export",
        "fit",
        "forget",
        "ingest",
        "learn",
        "plan",
        "predict",
        "report",
        "synth",
        "tune",
    ),
    "streamsvm.api.stores_and_models": ("load_model", "open_store"),
    "streamsvm.api.callbacks": ("MlflowTracker", "TensorBoardTracker"),
    "streamsvm.model": ("Model",),
    "streamsvm.errors": (
        "BudgetError",
        "ClusterError",
        "ConfigError",
        "DataError",
        "DefectError",
        "ExistsError",
        "InterruptedRun",
        "MissingError",
        "SecurityError",
        "StorageError",
        "StreamSVMError",
        "StreamSVMWarning",
        "UncertifiedError",
        "UsageError",
    ),
}
"""The public names by the module that defines them."""
_MODULES = {name: module for module, names in _PUBLIC_NAMES.items() for name in names}

__all__ = ["__version__", *sorted(_MODULES)]  # noqa: PLE0604 (the names are strings)


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562). Raises AttributeError that suggests the most similar name."""
    if name in _MODULES:
        value = globals()[name] = getattr(_import_module(_MODULES[name]), name)
        return value
    import difflib

    near = "".join(f"; did you mean '{one}'?" for one in difflib.get_close_matches(name, __all__, n=1))
    raise AttributeError(f"module 'streamsvm' has no attribute '{name}'{near}", name=name, obj=None)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
