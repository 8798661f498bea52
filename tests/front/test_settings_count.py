"""How many settings there are: each is something that a stranger may have to understand."""

import pkgutil
from importlib import import_module

import fastslow
import fastslow_placement
import fastslow_programs
from fastslow.core.settings import Settings

MOST = 190


def every_class(base=Settings):
    """Return the settings classes of the source, subclasses of subclasses included."""
    found = {subclass for each in base.__subclasses__() for subclass in {each} | every_class(each)}
    return {subclass for subclass in found if subclass.__module__.startswith("fastslow")}


def test_there_are_few_settings():
    """A setting counts where a class declares it first, not where one inherits it or changes its default."""
    for package in (fastslow, fastslow_programs, fastslow_placement):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.rpartition(".")[2] != "__main__":
                import_module(module.name)
    declared = {}
    for settings_class in every_class():
        bases = [
            base for base in settings_class.__bases__ if issubclass(base, Settings) and base is not Settings
        ]
        inherited = {name for base in bases for name in base.model_fields}
        declared[settings_class.__qualname__] = sorted({*settings_class.model_fields} - inherited)
    lines = [f"{name} ({len(fields)}): {', '.join(fields)}" for name, fields in sorted(declared.items())]
    total = sum(map(len, declared.values()))
    assert total <= MOST, f"{total} settings, at most {MOST} wanted:\n" + "\n".join(lines)
