"""What the ranker owes to what: the variants, who is trained once, and that nothing is selected."""

import pytest

import ranker_variants
from common.held_out import BASE, LAYOUTS
from fastslow.rankers.objectives import OBJECTIVES
from fastslow.rankers.settings import RankerSettings

OPTIONS = ["--threads", "1"]


def configs():
    options = ranker_variants.parse_arguments(OPTIONS)
    return {variant: ranker_variants.make_config(options, variant, 3) for variant in options.variants}


def test_every_objective_is_a_variant_and_the_base_is_the_default():
    found = configs()
    assert {settings.objective for settings in found.values()} == set(OBJECTIVES)
    assert found.pop(BASE).identity() == RankerSettings(seed=3).identity()
    few = found.pop(ranker_variants.FEW_COLUMNS)  # differs in columns, not in settings
    assert few.identity() == RankerSettings(seed=3).identity()
    identities = [str(settings.identity()) for settings in found.values()]
    assert len(set(identities)) == len(identities) and str(few.identity()) not in identities


@pytest.mark.parametrize(
    ("train_on", "sizes"), [("collection", [1] * 4), ("source", [2, 2]), ("layout", [4])]
)
def test_collections_that_are_learned_from_together_share_a_training(train_on, sizes):
    found = ranker_variants.groups(RankerSettings(train_on=train_on))
    assert [len(group) for group in found] == sizes
    assert sorted((c for group in found for c in group), key=LAYOUTS.index) == LAYOUTS
