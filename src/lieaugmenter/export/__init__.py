"""What was found, in forms that need neither the data nor the estimator."""

from lieaugmenter.export.manifest import Manifest as Manifest
from lieaugmenter.export.manifest import load_manifest as load_manifest
from lieaugmenter.export.manifest import manifest_of_run as manifest_of_run
from lieaugmenter.export.manifest import save_manifest as save_manifest
from lieaugmenter.export.predictor import RunPredictor as RunPredictor
from lieaugmenter.export.predictor import load_predictor as load_predictor
from lieaugmenter.export.predictor import save_program as save_program
from lieaugmenter.export.transform import RandomTransform as RandomTransform
