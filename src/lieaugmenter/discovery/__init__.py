"""Whether a task has a continuous symmetry, and what spans it, before anything is imposed.

Two teams of predictors are trained on different halves of the training data, without augmentation.
What both have learned is the task; what each got wrong is its own. The directions along which both
agree that nothing changes are the symmetry (`analysis.dimension`); the held-out samples, which
neither team has seen, judge them.

Where that leaves it open, because the teams have not learned the task well enough, the generators
that it may be are imposed on both teams, and they learn on: a symmetry that holds teaches them
much more from as many samples (`analysis.verdict.Trial`).
"""

from lieaugmenter.discovery.deciding import Discovery as Discovery
from lieaugmenter.discovery.deciding import discover as discover
from lieaugmenter.discovery.evidence import Evidence as Evidence
from lieaugmenter.discovery.evidence import weigh as weigh
from lieaugmenter.discovery.gathering import gather as gather
from lieaugmenter.discovery.given_number import known as known
from lieaugmenter.discovery.given_number import likeliest as likeliest
from lieaugmenter.discovery.teams import SEARCHED as SEARCHED
from lieaugmenter.discovery.teams import TEAM_WIDTHS as TEAM_WIDTHS
from lieaugmenter.discovery.teams import Team as Team
from lieaugmenter.discovery.teams import team_network as team_network
