"""Command lines whose outcome is recorded, one a line: of every command, with the options that lead elsewhere in it."""

from __future__ import annotations

from typing import Any

RBF = "--kernel rbf --gamma 0.3"
LANDMARKS = f"{RBF} --landmarks 20 --embedding disk"
CLOSE = "--tolerance 1e-6"
"""Where decision values are judged: those of two models that are 1e-3 apart are not the same in the third digit."""

FITS = {
    "hinge": "two --loss hinge --C 0.5",
    "squared hinge, dcd": "two --solver dcd --max-passes 6",
    "hinge, dual": "few --loss hinge --solver dcd --dual d.npy",
    "several C": "two --loss hinge --C 0.01,0.1,1 --solver newton",
    "lambda": "two --lambda 0.01 --loss logistic",
    "sparse": "sparse --loss huber --C 0.2",
    "weights of rows": "weighted --loss squared_hinge",
    "weights of classes": "two --class-weight a=2,b=0.5 --standardize",
    "balanced": "sorted --class-weight balanced --no-bias --loss hinge",
    "two chosen of three": "three --positive b --loss logistic",
    "classes apart": "three --C 0.1,1",
    "pairs": "three --multi-class ovo --loss hinge",
    "pairs, rbf": f"three --multi-class ovo --loss hinge {RBF} --tolerance 0.01",
    "classes together": "three --multi-class crammer_singer --loss hinge --max-passes 30",
    "numbers": "numbers --loss squared --C 0.3",
    "tube": "numbers --loss epsilon_insensitive --set loss.epsilon=0.2 --standardize",
    "quantile": "numbers --loss pinball --set loss.quantile=0.3",
    "l1 ball": "numbers --loss squared --l1-ball 0.8",
    "elastic net": "two --l1 4",
    "one class": "two --one-class --nu 0.2 --tolerance 0.01",
    "one class, rbf": f"two --one-class --nu 0.2 --positive b {RBF}",
    "one class, C": "two --one-class --C 0.1",
    "nu": "two --nu 0.4 --tolerance 0.01",
    "nu too small": "two --nu 0.05 --tolerance 0.01 --max-passes 20",
    "landmarks": f"two {LANDMARKS}",
    "landmarks, greedy": "two --kernel laplacian --gamma 0.3 --landmarks 15 --sampling greedy --embedding fly --loss hinge",
    "landmarks, file": "two --kernel rbf --landmark-file data/landmarks.npy --embedding disk --embedding-dtype float16",
    "landmarks, mean distance": "three --kernel rbf --gamma mean-distance --landmarks 12 --embedding fly --standardize",
    "landmarks, leverage": "two --kernel rbf --landmarks 12 --sampling leverage --embedding disk --embedding-dtype int8",
    "landmarks, far apart": "sparse --kernel rbf --landmarks 12 --sampling kmeans++ --embedding fly --loss hinge",
    "landmarks, greedy of three": f"three {LANDMARKS} --sampling greedy --seed 5",
    "landmarks, stochastic": f"two {LANDMARKS} --solver pegasos --loss hinge --max-passes 4",
    "exact kernel": f"two {RBF} --loss hinge",
    "exact kernel, polynomial": "two --kernel polynomial --set kernel.degree=2 --solver blended --tolerance 1e-5",
    "no Mercer kernel": "few --kernel sigmoid --gamma 0.1 --set kernel.coef0=0.5 --max-passes 4",
    "few support rows": f"two {RBF} --max-support 20 --loss hinge",
    "frank-wolfe": f"two {RBF} --solver partan --tolerance 0.1 --max-passes 3",
    "validation": "two --validation 0.3 --C 0.01,1 --loss hinge --solver dcd --max-passes 8",
    "validation, patience": "two --validation 0.3 --patience 2 --solver sgd --loss hinge --tolerance 0",
    "validation, store": "two --validation data/weighted --C 0.1,1",
    "validation, numbers": "numbers --validation 0.3 --C 0.01,1 --loss squared",
    "validation, landmarks": f"three --validation 0.3 {LANDMARKS} --C 0.1,1",
    "validation, landmarks and a store": f"three --validation data/three {LANDMARKS} --C 0.1,1",
    "validation, one chunk held": "few --validation 0.3 --loss hinge",
    "calibrated": f"two --calibrate sigmoid {CLOSE}",
    "calibrated by folds": f"two --calibrate isotonic --calibration-folds 3 --loss hinge --C 0.1,1 {CLOSE}",
    "calibrated, three classes": "three --calibrate sigmoid --calibration-folds 2 --loss squared_hinge",
    "calibrated, landmarks": f"two --calibrate sigmoid {LANDMARKS}",
    "not certified": "two --solver dcd --tolerance 1e-9 --max-passes 3 --loss hinge",
    "not certified, strict": "two --solver assg --tolerance 1e-9 --max-passes 3 --loss hinge --strict",
    "scales": "scales --solver dcd --max-passes 30",
    "scales, auto": "scales --loss hinge",
    "parts": "two --solver dcd --groups 3 --max-passes 5",
    "no effect": "two --cutoff 1e-3 --sampling greedy --gamma 2 --standardize-all --at-limit stop",
    "no effect of a solver": "two --solver newton --set solver.sample=100000 --set solver.narrowing=0.3",
    "sample": "two --solver newton --set solver.sample=40 --loss hinge",
    "dual of newton": "three --positive b --loss hinge --solver newton --dual d.npy",
    "dual of an interior point, held out": "numbers --loss pinball --solver interior_point --dual d.npy",
    "weights of rows, far and scaled": "weighted --standardize --loss huber --class-weight b=3 --C 2",
    "features too coarse": f"two {RBF} --landmarks 30 --embedding fly --C 1e5 --tolerance 1e-8",
    "least squares, standardized, no bias": "numbers --loss squared --standardize --no-bias --C 3",
    "squared tube, landmarks": f"numbers --loss squared_epsilon_insensitive {LANDMARKS}",
    "tube, exact kernel": f"numbers --loss epsilon_insensitive {RBF} --C 2 --solver kernel_active_set",
    "elastic net of numbers": "numbers --loss squared --l1 10",
    "interior point": "weighted --solver interior_point --loss hinge",
    "cutting planes": "two --solver cutting_plane --loss hinge --max-passes 12",
    "active set, several C": "two --solver active_set --loss hinge --C 0.1,1",
    "nu, landmarks": f"two --nu 0.4 {LANDMARKS} --tolerance 0.01",
    "nu, pairs": "three --nu 0.6 --multi-class ovo --tolerance 0.01",
    "one class, landmarks": f"two --one-class --nu 0.3 {LANDMARKS} --tolerance 0.01",
    "validation, one C, newton": "three --validation 0.3 --solver newton",
    "validation, pairs": "three --validation data/three --multi-class ovo --C 0.1,1",
    "calibrated, several C": "three --calibrate isotonic --C 0.1,1",
    "calibrated, weights of classes": f"sorted --calibrate sigmoid --class-weight a=3 {CLOSE}",
    "calibrated, exact kernel": f"two --calibrate sigmoid {RBF} --loss hinge",
    "page": "two --solver dcd --max-passes 4 --report page.html",
}
"""What a fit is asked for beside the name of its model."""

OTHERS = {
    "warm start": """
        fit data/two first.ssvm --loss hinge --C 0.1
        fit data/two m.ssvm --loss hinge --warm-start first.ssvm --solver dcd --max-passes 3
        fit data/three m3.ssvm --warm-start first.ssvm
    """,
    "again": """
        fit data/two m.ssvm --C 0.1,1 --solver dcd --max-passes 3
        fit data/two m.ssvm --C 0.1,1 --solver dcd --max-passes 3
        fit data/two m.ssvm --C 0.1,1 --solver dcd --max-passes 3 --resume
        fit data/two m.ssvm --C 0.1 --loss hinge --overwrite
        info m.ssvm --json
        verify m.ssvm
    """,
    "refused": """
        fit data/two m.ssvm --solver sgd
        fit data/two m.ssvm --nu 0.3 --C 1
        fit data/two m.ssvm --nu 0.3 --solver dcd
        fit data/two m.ssvm --one-class --nu 0.2 --C 1
        fit data/two m.ssvm --one-class --solver dcd
        fit data/two m.ssvm --one-class --dual d.npy
        fit data/two m.ssvm --multi-class ovo --calibrate sigmoid
        fit data/two m.ssvm --multi-class crammer_singer --solver newton
        fit data/two m.ssvm --l1-ball 1
        fit data/numbers m.ssvm --loss squared --l1-ball 1 --solver dcd
        fit data/two m.ssvm --l1 1 --solver dcd
        fit data/two m.ssvm --l1 1 --kernel rbf
        fit data/two m.ssvm --kernel rbf --solver dcd
        fit data/two m.ssvm --solver sgd --loss hinge --dual d.npy
        fit data/two m.ssvm --validation 0.2 --dual d.npy
        fit data/two m.ssvm --validation 0.2 --kernel rbf
        fit data/two m.ssvm --validation data/numbers
        fit data/two l.ssvm --calibrate sigmoid --loss logistic
        fit data/numbers m.ssvm --loss squared --validation data/two
        fit data/numbers m.ssvm --loss squared --calibrate sigmoid
        fit data/numbers m.ssvm
        fit data/two m.ssvm --loss squared
        fit data/two m.ssvm --positive z
        fit data/two m.ssvm --class-weight z=2
        fit data/two m.ssvm --C 1 --lambda 0.1
        fit data/two m.ssvm --patience 3
        fit data/two m.ssvm --calibration-folds 3
        fit data/two m.ssvm --kernel rbf --landmark-file data/rows.svm
        fit data/two m.ssvm --kernel rbf --landmark-file data/labels.npy --embedding fly
        fit data/two m.ssvm --kernel polynomial --set kernel.degree=2.5 --landmarks 5
        fit data/two m.ssvm --set solver.sample=3 --solver dcd
        fit data/two m.ssvm --max-support 5
        fit data/few data/two
        evaluate data/two data/two
        predict l.ssvm data/three p.csv --output probability
        tune data/two grid --nu 0.1 --C 1
        tune data/two grid --one-class --nu 0.1
        tune data/two grid --multi-class ovo
        tune data/few grid --folds 95
        tune data/two grid --landmarks 400 --kernel rbf
        embed data/two e.zarr --landmarks 10 --kernel linear
        export data/two m.txt
        report l.ssvm page.html
        report nothing.ssvm page.html
        synth two-moons s.zarr --rows 100 --set generator.noise=-1
        info data/nothing
    """,
    "another fit": """
        fit data/two m.ssvm --C 0.1 --solver dcd --max-passes 3
        fit data/two m.ssvm --C 0.2 --solver dcd --max-passes 3 --resume
        fit data/few m.ssvm --C 0.1 --solver dcd --max-passes 3 --resume
        fit data/two m.ssvm --C 0.1 --solver dcd --max-passes 5 --resume
        fit data/two m.ssvm --C 0.1 --solver dcd --max-passes 3 --resume --report page.html
        fit data/two n.ssvm --C 0.1 --resume --validation 0.3
        fit data/two n.ssvm --C 0.1 --resume --validation 0.3
    """,
    "plans short of memory": """
        plan data/two --memory 151MB --json
        plan data/two --memory 152MB --json
        plan data/three --solver dcd --memory 151MB --json
        plan data/two --kernel rbf --landmarks 200 --embedding fly --memory 155MB --json
        plan data/two --kernel rbf --landmarks 200 --embedding fly --memory 154MB
        plan data/two --kernel rbf --landmarks 100 --embedding disk --memory 190MB
        plan data/two --kernel rbf --memory 151MB --json
        plan data/two --kernel rbf --solver blended --memory 152MB --json
        plan data/two --solver interior_point --loss hinge --memory 151MB --json
        plan data/two --threads 8 --memory 152MB --json
    """,
    "plans": """
        plan data/two
        plan data/two --memory 150MiB --json
        plan data/three --C 0.1,1,10 --solver dcd --json
        plan data/sparse --solver dcd --validation 0.3 --dual d.npy --json
        plan data/two --kernel rbf --landmarks 100 --embedding fly --prefetch 5 --json
        plan data/two --kernel rbf --landmarks 30 --embedding disk --embedding-dtype int8 --calibrate sigmoid --json
        plan data/numbers --kernel rbf --loss pinball --json
        plan data/three --multi-class ovo --kernel rbf --json
        plan data/three --multi-class crammer_singer --json
        plan data/two --one-class --json
        plan data/two --nu 0.3 --kernel rbf --landmarks 10 --embedding fly --json
        plan data/two --threads 4 --solver dcd --json
        plan data/two --solver dcd --memory 2MiB
        fit data/two m.ssvm --dry-run --standardize --solver sgd --loss hinge
    """,
    "predictions": f"""
        fit data/two m.ssvm {CLOSE} --calibrate sigmoid
        predict m.ssvm data/two labels.csv
        predict m.ssvm data/sparse all.csv --output label,decision,probability
        predict m.ssvm data/two d.npy --output decision
        predict m.ssvm data/few - --output label,decision
        predict m.ssvm data/few labels.csv
        predict m.ssvm data/numbers p.txt --output probability
        predict m.ssvm data/missing n.csv
        evaluate m.ssvm data/sorted
        evaluate m.ssvm data/weighted --json --best-threshold F1 --threshold 0.5
        evaluate m.ssvm data/sparse --best-threshold cost --cost 1,5 --json
        evaluate m.ssvm data/three --json
        report m.ssvm page.html
        report m.ssvm page.html
        predict m.ssvm data/two e.doc
        predict m.ssvm data/two e.npy --output label,decision
        evaluate m.ssvm data/numbers --json
        evaluate m.ssvm data/two data/few
        evaluate m.ssvm data/two --cost 1
        info m.ssvm
    """,
    "predictions, several": f"""
        fit data/three m.ssvm {CLOSE} --loss logistic
        predict m.ssvm data/three all.csv --output decision,probability --json
        evaluate m.ssvm data/three
        evaluate m.ssvm data/three --json
        evaluate m.ssvm data/two --json
        evaluate m.ssvm data/three --threshold 0.2
    """,
    "predictions, pairs": f"""
        fit data/three m.ssvm {CLOSE} --multi-class ovo
        predict m.ssvm data/three all.csv --output label,decision
        evaluate m.ssvm data/three --json
    """,
    "predictions, numbers": f"""
        fit data/numbers m.ssvm {CLOSE} --loss squared
        predict m.ssvm data/numbers p.csv
        evaluate m.ssvm data/numbers
        evaluate m.ssvm data/numbers --json
        evaluate m.ssvm data/two --json
    """,
    "predictions, kernel": f"""
        fit data/two m.ssvm {RBF} --loss hinge
        predict m.ssvm data/two p.csv --output decision
        evaluate m.ssvm data/two --json
        fit data/two l.ssvm {LANDMARKS} --standardize {CLOSE}
        predict l.ssvm data/two l.csv --output label,decision
    """,
    "predictions, one class": """
        fit data/two m.ssvm --one-class --positive b --kernel rbf --nu 0.1
        predict m.ssvm data/two p.csv --output label,decision
        evaluate m.ssvm data/two --json
    """,
    "embedding": """
        embed data/two e.zarr --landmarks 10 --kernel rbf --json
        embed data/two e.zarr --landmarks 10 --kernel rbf
        embed data/two e.zarr --landmarks 12 --kernel rbf --gamma 0.2 --overwrite
        embed data/sparse s.zarr --landmarks 8 --kernel polynomial --dtype float16 --sampling greedy --chunk 4KiB
        embed data/scales t.zarr --landmark-file data/landmarks.npy --dtype int8 --standardize
        fit e.zarr m.ssvm
        predict m.ssvm data/two p.csv --output decision
        embed data/two g.zarr --landmarks 100 --memory 2MiB
    """,
    "search": """
        tune data/two grid --C 0.01,1 --folds 3
        report grid page.html --json
        tune data/two grid --C 0.01,1 --folds 3
        tune data/three kernels --kernel rbf --landmarks 5,10 --gamma 0.1,scale --folds 2 --C 0.1,1
        tune data/numbers numbers --loss squared --C 0.1,1 --folds 2 --json
        tune data/few exact --kernel rbf --gamma 0.1,1 --folds 2 --loss hinge
    """,
    "search by nu": """
        tune data/two nu --nu 0.2,0.4 --folds 2
        tune data/two one --one-class --positive b --nu 0.1,0.3 --folds 2 --kernel rbf
        tune data/sorted rare --C 0.1,1 --folds 2 --class-weight balanced --standardize
    """,
    "exported": """
        ingest data/rows.svm rows.zarr
        fit rows.zarr m.ssvm --tolerance 1e-6
        export m.ssvm m.txt
        export m.ssvm m.txt
        export m.ssvm svm.txt --format libsvm --json
        export m.txt again.ssvm --format streamsvm
        fit rows.zarr k.ssvm --kernel rbf --loss hinge
        export k.ssvm k.txt
    """,
    "synthetic": """
        synth two-moons moons.zarr --rows 300 --test-fraction 0.2 --seed 4 --chunk 4KiB --json
        synth separable s.zarr --rows 200 --columns 4 --set generator.margin=0.3 --chunk 4KiB
        synth sparse-text t.zarr --rows 100 --columns 300 --set generator.length=8
        synth susy u.zarr --rows 150
        synth table w.zarr --rows 120 --columns 12
        synth names n.csv --rows 40 --test-fraction 0.25 --json
        synth names n.zarr --rows 40
        synth susy u.zarr --rows 10
        info moons.zarr --columns
        info t.zarr
        verify moons.zarr --json
    """,
    "tables": """
        ingest data/people.csv t.zarr --label left --missing indicator --chunk 4KiB --seed 3
        ingest data/people.csv u.zarr --label left --missing mean --categorical zone --drop charged --test-fraction 0.25 --stratify
        ingest data/people.csv v.zarr --label charged --task regression --missing zero --hash 4 --shuffle
        ingest data/people.csv w.zarr --label left --missing zero --positive yes --min-count 20 --column zone=category --cross zone*plan
        ingest data/people.csv x.zarr --label left --missing zero --split-after zone=3
        ingest data/people.csv y.zarr --label left --missing zero --split-by zone --test-fraction 0.4 --weight charged
        ingest data/people.csv z.zarr --label left
        ingest data/people.csv a.zarr --label left --missing zero --split-by zone
        ingest data/people.csv a.zarr --label left --missing zero --split-by zone --split-after zone=2
        ingest data/people.csv a.zarr --label left --missing zero --split-after zone=9
        ingest data/people.csv a.zarr --label left --missing zero --split-after zone
        ingest data/people.csv a.zarr --label left --missing zero --stratify
        ingest data/people.csv b.zarr --label left --missing zero --column age=log --column plan=hash:3 --shuffle --test-fraction 0.2
        ingest data/people.csv c.zarr --label zone --missing mean --drop left --layout csr --test-fraction 0.1 --test-store d.zarr
        info u.zarr --columns
        info v.zarr
    """,
    "tables with faults": """
        ingest data/faults.csv t.zarr --label left --missing zero
        ingest data/faults.csv t.zarr --label left --missing zero --on-bad-line skip --max-bad 5% --missing-label skip
        ingest data/faults.csv u.zarr --label left --missing zero --on-bad-line skip --max-bad 0.1%
        ingest data/people.csv v.zarr --label left --missing zero --expect-rows 100
        ingest data/people.csv w.zarr --label left --missing zero --memory 2MiB
        ingest data/people.csv --label left --describe
        ingest data/people.csv --label left --write-schema s.toml --missing zero
        ingest data/people.csv x.zarr --schema s.toml --label left --missing zero
    """,
    "long tables": """
        ingest data/long.csv a.zarr --label kind --chunk 4KiB
        ingest data/long.csv b.zarr --label kind --chunk 4KiB --shuffle --seed 5 --json
        ingest data/long.csv c.zarr --label kind --chunk 4KiB --shuffle --test-fraction 0.3 --stratify --drop k,serial
        ingest data/long.csv d.zarr --label kind --chunk 4KiB --split-by far --test-fraction 0.3
        ingest data/long.csv e.zarr --label far --task regression --chunk 4KiB --test-fraction 0.3 --column k=category
        ingest data/long.csv f.zarr --label near --label-threshold 0.5 --hash 3 --layout csr
        ingest data/long.csv --label kind --describe --json
        info a.zarr --columns
        fit a.zarr m.ssvm --validation 0.3
        fit b.zarr n.ssvm --validation 0.3 --standardize --max-passes 20
        tune a.zarr grid --folds 2
        predict n.ssvm data/long.csv p.csv --output decision
        predict n.ssvm data/people.csv q.csv
        evaluate n.ssvm data/two
    """,
    "other files": """
        ingest data/rows.svm a.zarr --chunk 4KiB --json
        ingest data/rows.svm b.zarr --layout dense --features 6 --shuffle --test-fraction 0.2
        ingest data/rows.npy c.zarr --labels data/labels.npy
        ingest data/rows.npy d.h5 --labels data/labels.npy --chunk 4KiB
        ingest data/rows.npy e.zarr --label last --label-threshold 0.5
        ingest data/missing.csv f.zarr
        verify d.h5
    """,
    "by workers": """
        fit data/two m.ssvm --cluster here: --loss hinge --solver dcd --max-passes 3
        fit data/three n.ssvm --cluster here: --C 0.1,1 --solver newton --validation data/three
        fit data/two p.ssvm --cluster here: --groups 3 --solver assg --loss hinge --max-passes 2
        fit data/two k.ssvm --cluster here: --kernel rbf --landmarks 12 --embedding disk
        fit data/two c.ssvm --cluster here: --calibrate sigmoid --tolerance 1e-6
        fit data/two x.ssvm --cluster here: --calibrate sigmoid --calibration-folds 2
        predict c.ssvm data/two p.csv --cluster here: --output label,probability
        predict m.ssvm data/two d.npy --cluster here: --output decision
        evaluate c.ssvm data/two --cluster here: --json
        evaluate m.ssvm data/three --cluster here: --json --threshold 0.1
        embed data/weighted e.zarr --cluster here: --landmarks 10 --kernel rbf --dtype float16 --chunk 4KiB --json
        embed data/weighted e.zarr --cluster here: --landmarks 10 --kernel rbf --dtype float16 --chunk 4KiB --json
        tune data/two grid --cluster here: --C 0.1,1 --folds 2 --json
        ingest data/people.csv data/new.csv t.zarr --cluster here: --label left --missing zero --test-fraction 0.2
        ingest data/people.csv data/new.csv u.zarr --label left --missing zero --test-fraction 0.2 --json
        ingest data/rows.svm data/rows.svm v.zarr --cluster here: --chunk 4KiB --json
        ingest data/people.csv data/new.csv w.zarr --cluster here: --label left --missing zero --split-by zone --test-fraction 0.2
        ingest data/people.csv data/new.csv w.zarr --cluster here: --label left --missing zero --id charged
        ingest data/people.csv data/new.csv w.zarr --cluster here: --label left --missing zero --on-bad-line skip
        fit t.zarr s.ssvm --tolerance 1e-6
        predict s.ssvm data/new.csv data/people.csv q.csv --cluster here: --output label,decision
        evaluate s.ssvm data/new.csv data/people.csv --cluster here: --json
        predict s.ssvm data/faults.csv r.csv --cluster here: --on-bad-line skip
        fit data/two o.ssvm --cluster here: --dual dual.npy --solver interior_point --loss hinge
        fit data/two y.ssvm --cluster here: --kernel rbf
        fit data/two o.ssvm --cluster nowhere
        fit data/two z.ssvm --insecure-network
    """,
    "new rows": """
        ingest data/people.csv t.zarr --label left --missing mean --id charged
        fit t.zarr m.ssvm --standardize --tolerance 1e-6
        predict m.ssvm data/new.csv p.csv --output label,decision
        evaluate m.ssvm data/new.csv --json
        evaluate m.ssvm data/faults.csv --json --on-bad-line skip --max-bad 10%
        predict m.ssvm data/faults.csv q.csv --on-bad-line skip --max-bad 10%
        predict m.ssvm data/new.csv r.csv --label none
        info m.ssvm
        predict m.ssvm t.zarr s.csv
        predict m.ssvm t.zarr s.npy --output decision
        evaluate m.ssvm t.zarr --json
    """,
}


CALIBRATED = {"calibrate": "sigmoid"}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "hinge": ("two", {"loss": "hinge", "C": (0.1, 1.0)}),
    "squared hinge, to a gap": ("sparse", {"tolerance": 0.9}),
    "by descent": ("two", {"solver": "dcd", "max_passes": 4}),
    "rbf": ("two", {"kernel": "rbf", "gamma": 0.3, "loss": "hinge"}),
    "landmarks": ("two", {"kernel": "rbf", "gamma": 0.3, "landmarks": 15}),
    "pairs, rbf": ("three", {"kernel": "rbf", "gamma": 0.3, "multi_class": "ovo", "loss": "hinge"}),
    "one class": ("two", {"one_class": True, "nu": 0.3, "kernel": "rbf", "gamma": 0.3}),
    "numbers": ("numbers", {"loss": "squared", "standardize": True}),
    "tube": ("numbers", {"loss": "epsilon_insensitive"}),
    "calibrated": ("three", CALIBRATED),
    "calibrated by folds": ("few", CALIBRATED | {"loss": "hinge", "calibration_folds": 2}),
    "logistic": ("weighted", {"loss": "logistic", "class_weight": {"a": 2.0}}),
    "short of memory": ("two", {"solver": "dcd", "memory": 151_002_155, "max_passes": 3}),
    "elastic net": ("two", {"l1": 4.0}),
}
"""What a fit of rows in memory is asked for, and of which rows."""

PORTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    f"{solver}, {loss}": (store, {"solver": solver, "loss": loss, "lambda_": 1e-2})
    for solver, loss, store in (
        ("pegasos", "hinge", "two"),
        ("sgd", "logistic", "weighted"),
        ("assg", "hinge", "three"),
        ("sgd_qn", "hinge", "sparse"),
    )
}
"""The same of fits of portions, one after the other."""


def _cases() -> dict[str, str]:
    fits = {f"fit, {name}": f"fit data/{said.replace(' ', ' m.ssvm ', 1)}" for name, said in FITS.items()}
    return fits | OTHERS


CASES = _cases()
