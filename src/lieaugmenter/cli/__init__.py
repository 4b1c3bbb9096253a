"""The command line: demo, discover, resume, predict, report, export, doctor, check, …"""

import sys

try:
    import cyclopts
    import rich.console
except ImportError:
    sys.exit("the command line needs: pip install 'lieaugmenter[cli]'")

# Imported for their commands, which they add to the app.
from lieaugmenter.cli import finished, predicting, questions, reproduce, sweep, training
from lieaugmenter.cli.program import ABOVE_LIMIT as ABOVE_LIMIT
from lieaugmenter.cli.program import BAD_INPUT as BAD_INPUT
from lieaugmenter.cli.program import INCONCLUSIVE as INCONCLUSIVE
from lieaugmenter.cli.program import INTERRUPTED as INTERRUPTED
from lieaugmenter.cli.program import STOPPED as STOPPED
from lieaugmenter.cli.program import app as app
from lieaugmenter.cli.program import main as main
