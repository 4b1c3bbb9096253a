"""scikit-learn estimators: fit(X, y) finds the symmetry and the predictor."""

try:
    # The newest of what they use: an older scikit-learn is as good as none.
    from sklearn.utils.validation import validate_data as _validate_data
except ImportError:
    raise ImportError(
        "the estimators need scikit-learn: pip install 'lieaugmenter[sklearn]'"
    ) from None

from lieaugmenter.estimators.building import NETWORKS as NETWORKS
from lieaugmenter.estimators.classifier import SymmetryClassifier as SymmetryClassifier
from lieaugmenter.estimators.regressor import SymmetryRegressor as SymmetryRegressor
