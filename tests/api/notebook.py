# %% Imports
"""A day of a data scientist, cell by cell; ``test_notebook.py`` runs it, and ``tools/check`` has pyright check its types.

A cell that needs a package beside those of the tests names it: ``# %% Title [needs package]``. Types are checked strictly;
lines with ``pyright: ignore`` call packages that have none.
"""

# pyright: strict, reportMissingTypeStubs=false, reportUnusedExpression=false
import pickle
from operator import methodcaller
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from sklearn.base import clone  # pyright: ignore
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, cross_val_score  # pyright: ignore
from sklearn.pipeline import make_pipeline  # pyright: ignore
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import streamsvm as sv
from streamsvm.sklearn import StreamNystroem, StreamOneClassSVM, StreamRows, StreamSVC, StreamSVCCV, StreamSVR


def accuracy_of(estimator: object, X: object, y: object) -> float:
    """Return the mean accuracy on two folds."""
    return float(cross_val_score(estimator, X, y, cv=2).mean())  # pyright: ignore


shown_in_notebook = methodcaller("_repr_html_")
assert sv.__version__

# %% A table with numbers, words, dates, truth values and gaps
rng = np.random.default_rng(0)
rows = 400
age = rng.integers(18, 80, rows).astype(float)
plan_of = rng.choice(["basic", "extra", "family"], rows)
spent = rng.gamma(2.0, 40.0, rows)
score = 0.05 * (age - 45.0) + 1.5 * (plan_of == "family") - 0.01 * spent + rng.normal(0.0, 0.5, rows)
left = score > 0.0
age[::17] = np.nan
columns = {
    "age": age,
    "plan": pd.Categorical(plan_of),
    "spent": spent,
    "joined": np.datetime64("2020-01-01", "ns") + np.arange(rows) * np.timedelta64(86400, "s"),
    "member": rng.random(rows) > 0.5,
}
features = pd.DataFrame(columns)
customers = pd.DataFrame({**columns, "left": left})
assert customers.shape == (400, 6)

# %% One call fits a raw table, fills its gaps, and judges the model on rows held out
result = sv.fit(customers, y="left")
assert result.certified
assert result.gap <= 1e-3
assert result.evaluation is not None
assert result.evaluation.measures["accuracy"] > 0.7

# %% The result is a line in a terminal and a card in a notebook
assert "gap" in repr(result)
assert "\n" not in repr(result)
assert "interval" in shown_in_notebook(result)
result

# %% What was decided before the first row was read
assert result.plan.solver_name == "newton"
assert result.plan.layout.rows + result.evaluation.evaluation.rows == rows
assert "memory" in repr(result.plan)
result.plan

# %% The model answers in the type of the labels
answers = result.model.predict(features)
assert answers.dtype == bool
assert answers.shape == (rows,)
result.model

# %% It is judged on any labeled rows: by the result, the model, or its file
result.model.save(Path("left.ssvm"))
judged = [sv.evaluate(one, customers, y="left").measures for one in (result, result.model, "left.ssvm")]
assert judged[0] == judged[1] == judged[2]
assert judged[0]["accuracy"] == np.count_nonzero(answers == left) / rows

# %% What counts, by column of the table and by value
weights = result.model.coefficients(features)
assert list(weights.columns) == ["outcome", "column", "value", "coefficient", "share"]
shares = weights.groupby("column")["share"].sum()  # pyright: ignore
assert np.isclose(shares.sum(), 1.0)  # pyright: ignore
assert set(weights["column"][:3]) <= {"age", "plan", "spent"}  # pyright: ignore

# %% What moved the decision of one row
explained = result.model.explain(features.head(1))
top = explained.of_row(0, count=3)
assert len(top) == 3
decision = float(result.model.decision_function(features.head(1))[0])
assert explained.contributions is not None
assert abs(explained.contributions[0, 0].sum() + explained.intercept[0] - decision) < 1e-6

# %% A model file is verified when it is read, and is the same model
assert sv.load_model("left.ssvm") == result.model

# %% A table of polars, eager or lazy, is the same table
table = pl.DataFrame({"age": age, "spent": spent, "plan": plan_of, "left": left}).fill_nan(None)
by_polars = sv.fit(table, y="left")
assert by_polars.certified
assert np.array_equal(by_polars.model.predict(table), by_polars.model.predict(table.lazy()))

# %% So is one of Arrow, and a reader of it
arrow = cast(Any, pa.table({"age": age, "spent": spent, "plan": plan_of, "left": left}))  # pyright: ignore
by_arrow = sv.fit(arrow, y="left")
assert np.array_equal(by_arrow.model.predict(arrow.to_reader()), by_polars.model.predict(table))

# %% A query of DuckDB is fitted without a copy of its rows in memory
import duckdb

connection = duckdb.connect()
connection.register("customers", customers)
grown_up = connection.sql("select * from customers where age >= 20")
by_query = sv.fit(grown_up, y="left")
assert by_query.evaluation is not None
assert by_query.model.predict(grown_up).dtype == bool

# %% A linear model is a query for DuckDB, too
sv.export(result.model, "left.sql", format="sql", overwrite=True)
query = f'with "input" as (select * from customers) {Path("left.sql").read_text()}'
labels = connection.sql(query).fetchnumpy()["label"]
assert [str(label).lower() for label in labels] == [str(answer).lower() for answer in answers]

# %% A dask frame is fitted, judged and answered part by part
import dask.dataframe as dd

parts = cast(Any, dd.from_pandas(customers, npartitions=3))  # pyright: ignore
by_dask = StreamSVC(missing="mean", standardize=True).fit(parts, "left")
assert by_dask.score(parts, "left") > 0.7
assert np.array_equal(by_dask.predict(parts.drop(columns="left")), by_dask.predict(features))

# %% An estimator on a frame knows its columns
assert by_dask.feature_names_in_.tolist() == list(columns)
assert "plan=family" in by_dask.get_feature_names_out().tolist()
assert by_dask.n_features_in_ == 5

# %% Arrays are fitted with a certificate
X = rng.normal(size=(rows, 4))
truth = X[:, 0] - 0.5 * X[:, 1] + 0.3 * rng.normal(size=rows) > 0.0
svc = StreamSVC(C=1.0).fit(X, truth)
assert svc.gap_ <= svc.tolerance
assert svc.coef_.shape == (1, 4)
assert svc.score(X, truth) > 0.85
assert sv.evaluate(svc, X, y=truth).measures["accuracy"] == svc.score(X, truth)
assert sv.export(svc, "liblinear.model", overwrite=True).bytes > 0

# %% Labels come back in the type they had
for y in (truth, truth.astype(int), np.where(truth, "yes", "no"), truth.astype(float)):
    fitted = StreamSVC().fit(X, y)
    assert fitted.predict(X).dtype == fitted.classes_.dtype == y.dtype
    assert sv.fit(X, y=y).model.predict(X).dtype.kind == y.dtype.kind
worded = pd.Series(np.where(truth, "yes", "no"), dtype="category")
assert set(StreamSVC().fit(X, worded).predict(X)) == {"yes", "no"}
assert set(sv.fit(X, y=worded).model.predict(X)) == {"yes", "no"}
for nullable in ("boolean", "Int64"):
    assert StreamSVC().fit(X, pd.Series(truth, dtype=nullable)).predict(X).dtype.kind == nullable[0].lower()

# %% It is a step of a pipeline, and is cross-validated as such
numbers, words = ["age", "spent"], ["plan"]
prepared = ColumnTransformer([("numbers", StandardScaler(), numbers), ("words", OneHotEncoder(), words)])
pipeline = make_pipeline(prepared, StreamSVC())
complete, leaves = features.dropna(), left[~np.isnan(age)]
assert accuracy_of(pipeline, complete, leaves) > 0.7

# %% A grid is searched over it
search = GridSearchCV(pipeline, {"streamsvc__C": [0.01, 1.0]}, cv=2)
best: dict[str, float] = search.fit(complete, leaves).best_params_  # pyright: ignore
assert best["streamsvc__C"] in {0.01, 1.0}

# %% Probabilities: of scikit-learn's tool around it, or of its own
around = np.asarray(CalibratedClassifierCV(StreamSVC(), cv=3).fit(X, truth).predict_proba(X), float)  # pyright: ignore
own = StreamSVC(calibrate="sigmoid").fit(X, truth)
assert np.allclose(own.predict_proba(X).sum(axis=1), 1.0)
assert np.mean(np.abs(around - own.predict_proba(X))) < 0.1

# %% A parameter has one meaning under both names, and two values of it are refused
assert np.array_equal(
    StreamSVC(seed=1, threads=1).fit(X, truth).coef_, StreamSVC(random_state=1, n_jobs=1).fit(X, truth).coef_
)
assert sv.fit(X, y=truth, random_state=1, n_jobs=1).certified
try:
    StreamSVC(seed=1, random_state=2).fit(X, truth)
except ValueError as error:
    assert "random_state=2 and seed=1 are two names of one parameter" in str(error)
else:
    raise AssertionError

# %% C is chosen on shared readings of the rows, by the measure that people use
chosen = StreamSVCCV(Cs=(0.01, 0.1, 1.0), cv=3, scoring="roc_auc").fit(X, truth)
assert chosen.C_ in {0.01, 0.1, 1.0}
assert chosen.scores_.shape == (3, 3)

# %% Weights of rows and of classes
heavy = StreamSVC(class_weight={True: 20.0}).fit(X, truth)
assert heavy.predict(X).sum() > svc.predict(X).sum()
doubled = StreamSVC().fit(X, truth, sample_weight=np.full(rows, 2.0))
assert np.allclose(doubled.coef_, StreamSVC(C=2.0).fit(X, truth).coef_, rtol=1e-3)

# %% The threshold of a rare class is chosen by F1
rare = X[:, 0] > 1.2
by_f1 = StreamSVC(threshold="f1").fit(X, rare)
assert by_f1.model_.threshold != 0.0

# %% Numbers are predicted, too
target = 3.0 * X[:, 0] - X[:, 2]
assert StreamSVR(C=10.0, epsilon=0.0).fit(X, target).score(X, target) > 0.99
assert sv.fit(X, y=target, task="regression", loss="squared").model.classes == ()

# %% And what is unlike all other rows is found
inside = StreamOneClassSVM(nu=0.1, kernel="rbf").fit(X)
assert (inside.predict(X) == -1).mean() < 0.2
assert inside.predict(np.full((1, 4), 50.0)).tolist() == [-1]

# %% Kernel features are a transformer with names
mapped = StreamNystroem(landmarks=20).set_output(transform="pandas").fit_transform(X)
assert list(mapped.columns) == [f"streamnystroem{k}" for k in range(20)]
assert accuracy_of(make_pipeline(StreamNystroem(landmarks=20), StreamSVC()), X, truth) > 0.8

# %% Rows that come in portions
learner = StreamSVC(C=0.01)
for start in range(0, rows, 100):
    learner.partial_fit(X[start : start + 100], truth[start : start + 100], classes=[False, True])
assert learner.rows_seen_ == rows
assert learner.score(X, truth) > 0.8

# %% Estimators are cloned and pickled
again = pickle.loads(pickle.dumps(own))
assert np.array_equal(again.predict_proba(X), own.predict_proba(X))
unfitted: StreamSVC = clone(own)  # pyright: ignore
assert unfitted.get_params() == own.get_params()

# %% Rows that do not fit the memory lie in a store
sv.ingest(X, "rows.zarr", y=truth, overwrite=True)
store = sv.open_store("rows.zarr")
assert (store.layout.rows, store.layout.columns) == (400, 4)
assert "400 rows x 4 columns" in repr(store)
store

# %% An estimator is fitted to it, and scikit-learn cuts it without reading it whole
assert StreamSVC().fit("rows.zarr").classes_.tolist() == [False, True]
stored = StreamRows("rows.zarr")
assert accuracy_of(StreamSVC(), stored, stored.labels) > 0.8

# %% A plan costs nothing; a fit of the store is told pass by pass and draws its page
assert sv.plan("rows.zarr", memory="1GiB").memory.limit == 1 << 30
gaps: list[float] = []
drawn = sv.fit(
    "rows.zarr", "rows.ssvm", report="rows.html", overwrite=True, on_pass=lambda record: gaps.append(record["gap"])
)
assert len(gaps) == drawn.passes
assert 'href="rows.html"' in shown_in_notebook(drawn)
drawn

# %% A search of the store, by one measure
tuned = sv.tune("rows.zarr", "search", C=[0.01, 1.0], cv=2, scoring="auc", overwrite=True)
assert tuned.best.C in {0.01, 1.0}
assert len(tuned.scores) == 2
assert "best C" in shown_in_notebook(tuned)
tuned

# %% Two fits are compared on one page
other = sv.fit("rows.zarr", "other.ssvm", C=0.001, overwrite=True)
assert sv.report([drawn, other], "compared.html", overwrite=True).runs == 2

# %% The model leaves as an estimator of scikit-learn that needs nothing of this package
leaving = result.model.to_sklearn()
assert np.array_equal(leaving.predict(features), answers)

# %% What is wrong is said in the words of Python, with what to do
try:
    sv.fit("rows.zarr", "never.ssvm", memory="1MiB")
except sv.BudgetError as error:
    assert "memory" in error.hint
    assert "--" not in str(error)
else:
    raise AssertionError

# %% Optuna tries settings [needs optuna]
import optuna

optuna.logging.set_verbosity(optuna.logging.WARNING)


def objective(trial: optuna.Trial) -> float:
    """Return the accuracy of a value of C."""
    C = trial.suggest_float("C", 1e-3, 10.0, log=True)
    return accuracy_of(StreamSVC(C=C), X, truth)


study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
study.optimize(objective, n_trials=3)
assert study.best_value > 0.8

# %% MLflow logs every pass and the fitted estimator [needs mlflow, skops]
import os

import mlflow
import mlflow.sklearn

from streamsvm.sklearn import TRUSTED_TYPES

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
mlflow.set_tracking_uri(Path("runs").absolute().as_uri())
with mlflow.start_run() as run:
    tracked = StreamSVC(solver="dcd", on_pass=sv.MlflowTracker()).fit(X, truth)
    logged = mlflow.sklearn.log_model(svc, name="model", skops_trusted_types=TRUSTED_TYPES)  # pyright: ignore
assert mlflow.get_run(run.info.run_id).data.metrics["gap"] == tracked.passes_[-1]["gap"]
loaded: Any = mlflow.sklearn.load_model(logged.model_uri)  # pyright: ignore
assert np.array_equal(loaded.predict(X), svc.predict(X))

# %% skops stores an estimator without a pickle [needs skops]
import skops.io

from streamsvm.sklearn import TRUSTED_TYPES

skops.io.dump(own, "own.skops")
assert np.array_equal(skops.io.load("own.skops", trusted=TRUSTED_TYPES).predict(X), own.predict(X))

# %% SHAP values of a linear model are its contributions, less their mean [needs shap]
import shap

masker: Any = shap.maskers.Independent(X, max_samples=rows)  # pyright: ignore
values: Any = shap.LinearExplainer((svc.coef_[0], svc.intercept_[0]), masker).shap_values(X[:5])  # pyright: ignore
assert np.allclose(values, (X[:5] - X.mean(axis=0)) * svc.coef_[0])
