"""Place and medal of a private score."""

from fastslow.evaluation.standing import MEDALS, PRIVATE, TEAMS, standing_of
from helpers.cases import cases


@cases(
    "score, place, medal",
    [
        (0.9, "1", "gold"),
        (0.72608, "1", "gold"),
        (0.72, "2 to 11", "gold"),
        (0.69927, "2 to 11", "gold"),
        (0.69926, "12 to 31", "silver"),
        (0.6, "32 to 62", "silver or bronze"),
        (0.5, "63 to 309", "bronze or no medal"),
        (0.114, "310 to 617", "no medal"),
        (-0.2, "310 to 617", "no medal"),
    ],
)
def test_the_place_is_behind_the_teams_that_have_more(score, place, medal):
    assert (standing_of(score).place, standing_of(score).medal) == (place, medal)


def test_the_kept_places_are_in_order_and_medals_end_with_the_board():
    assert sorted(PRIVATE) == [*PRIVATE] and sorted((s for _, s in PRIVATE), reverse=True) == [
        score for _, score in PRIVATE
    ]
    assert MEDALS[0] == (11, "gold") and MEDALS[-1][0] == TEAMS
