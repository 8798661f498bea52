"""For every task, each setting of ``place`` is read by a whole comparison, or refused."""

from fastslow_placement.place import compare, read_problem
from fastslow_placement.settings import PlaceSettings
from helpers.cases import cases
from helpers.dot_module import varied_module
from helpers.read_settings import ignored, settings_read


@cases("task", ["placement", "scheduling", "fusion", "joint"])
def test_each_setting_is_read_or_refused(tmp_path, task):
    source = tmp_path / f"{task}.pb"
    source.write_bytes(varied_module(2).SerializeToString())
    for search in (0, 60):
        settings = PlaceSettings(source=str(source), task=task, search=search)
        with settings_read() as read:
            compare(settings, read_problem(settings))
        assert ignored(settings, read, ignore=["out"]) == []
