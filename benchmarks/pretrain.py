"""Experiment: imitation of searches and policy gradients on 339 problems (modes data, train, rl, eval); /tmp holds its files."""
import time, sys, pickle, os, copy
import numpy as np, torch
from pathlib import Path
from fastslow_placement.programs.problem_set import *
from fastslow_placement.go.pretrain import lessons, loss
from fastslow_placement.go.policy import Policy, Shape, Inputs
from fastslow_placement.go.ppo import Trainer, Schedule, zero_shot
torch.set_num_threads(1)
mode=sys.argv[1]
if mode=="data":
    lo,hi,split=int(sys.argv[2]),int(sys.argv[3]),sys.argv[4]
    paths=program_files(Path("data/sample"), ("train","valid") if split=="train" else ("test",))[lo::hi]
    t=time.time(); out=[]; n=0
    for i,p in enumerate(problems(paths,3 if split=="train" else 1)):
        ls=lessons(p, 3000, 1000*i) if split=="train" else []
        p.__dict__.pop("scheduler_cache",None)
        out.append((p,ls)); n+=len(ls)
        if i%20==0: print(i, p.name, len(p.choices), len(ls), np.mean([len(l.units) for l in ls]) if ls else 0, round(time.time()-t), flush=True)
    pickle.dump(out, open(f"/tmp/go_{split}_{lo}.pkl","wb")); print(len(out), n, time.time()-t)
def load(split, los):
    return sum((pickle.load(open(f"/tmp/go_{split}_{lo}.pkl","rb")) for lo in los), [])
if mode=="train":
    seed, epochs, lr, endw, width, los = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]), [int(x) for x in sys.argv[7].split(",")]
    limit=int(sys.argv[8]) if len(sys.argv)>8 else 10**9
    data=load("train", los)
    rng=np.random.default_rng(seed); torch.manual_seed(seed)
    policy=Policy(Shape(hidden=width))
    items=[(i,j) for i,(p,ls) in enumerate(data) for j in range(len(ls))]
    inputs=[Inputs(p) for p,_ in data]; mov=[torch.from_numpy(p.choices>1) for p,_ in data]
    steps=min(limit, epochs*len(items))//8
    opt=torch.optim.Adam(policy.parameters(), lr)
    sched=torch.optim.lr_scheduler.OneCycleLR(opt, lr, total_steps=steps+1, pct_start=0.1)
    t=time.time(); n=0; acc=[]
    print(len(data), len(items), sum(x.numel() for x in policy.parameters()), flush=True)
    for e in range(epochs):
        for k in rng.permutation(len(items)):
            i,j=items[k]
            c,d=loss(policy, inputs[i], data[i][1][j], mov[i])
            ((c+endw*d)/8).backward(); acc.append((c.item(), d.item())); n+=1
            if n%8==0:
                torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0); opt.step(); opt.zero_grad(); sched.step()
            if n%400==0: print(e, n, np.mean(acc[-400:],0).round(4), round(time.time()-t), flush=True)
            if n//8>=steps: break
        if n//8>=steps: break
        torch.save({"policy":policy.state_dict(),"shape":policy.shape.model_dump()}, f"/tmp/pol_{seed}_{width}_{endw}.pt")
    torch.save({"policy":policy.state_dict(),"shape":policy.shape.model_dump()}, f"/tmp/pol_{seed}_{width}_{endw}.pt")
if mode=="eval":
    from fastslow_placement.programs.region_search import Neighbourhood
    from fastslow_placement.programs.zoo_graphs import PROGRAMS, zoo_placement
    from fastslow_placement.programs.roofline import DEVICES
    from fastslow_placement.base.search import anneal
    from fastslow_placement.baselines import metis
    ckpt, budgets, seeds, which, step = sys.argv[2], [int(x) for x in sys.argv[3].split(",")], [int(x) for x in sys.argv[4].split(",")], sys.argv[5], int(sys.argv[6])
    probs=[zoo_placement(n, DEVICES["p100"]) for n in PROGRAMS] if which=="zoo" else [p for p,_ in load("test",[0])]
    probs=probs[::step]
    st=torch.load(ckpt, weights_only=True)
    def trained():
        q=Policy(Shape(**st["shape"])); q.load_state_dict(st["policy"]); return q
    rows=[]
    for p in probs:
        row={"name":p.name}; b=p.baseline
        o=p.evaluate(p.starts).order
        row["start"]=o.min()/b; row["metis"]=p.evaluate(metis(p)[None]).order[0]/b
        nb=Neighbourhood(p); f,_=nb.search(p.starts[o.argmin()], 30000, 0); row["search30k"]=f.cost/b
        g=lambda xs: float(np.exp(np.mean(np.log(xs))))
        row["imp_trained"]=zero_shot(trained(), p, 10, False).cost/b
        us=[]
        for s in seeds:
            torch.manual_seed(s); us.append(zero_shot(Policy(Shape()), p, 10, False).cost/b)
        row["imp_untr"]=g(us)
        for n in budgets:
            upd=max((n-22)//8,1)
            a=[];u=[];r=[];f2=[]
            for s in seeds:
                a.append(Trainer(trained(), [p], Schedule(updates=upd, epochs=0), s).run(upd)[0].cost/b)
                torch.manual_seed(s); u.append(Trainer(Policy(Shape()), [p], Schedule(updates=upd, epochs=0), s).run(upd)[0].cost/b)
                r.append(nb.search(p.starts[o.argmin()], n-13, s)[0].cost/b)
            row[f"tr{n}"],row[f"un{n}"],row[f"rs{n}"]=g(a),g(u),g(r)
        rows.append(row); print({k:(round(v,3) if not isinstance(v,str) else v) for k,v in row.items()}, flush=True)
    import pandas as pd
    d=pd.DataFrame(rows).set_index("name"); print(np.exp(np.log(d.replace(np.inf,np.nan)).mean()).round(4).to_string()); d.to_csv(f"/tmp/eval_{which}_{os.path.basename(ckpt)}.csv")
if mode=="rl":
    seed, minutes, lr, ent, los, tag, init = int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]), [int(x) for x in sys.argv[6].split(",")], sys.argv[7], sys.argv[8]
    data=load("train", los); rng=np.random.default_rng(seed); torch.manual_seed(seed); gen=torch.Generator().manual_seed(seed)
    policy=Policy(Shape())
    if init!="none":
        policy.load_state_dict(torch.load(init,weights_only=True)["policy"])
    inputs=[Inputs(p) for p,_ in data]
    opt=torch.optim.Adam(policy.parameters(), lr); t=time.time(); n=0; acc=[]
    S=128
    while time.time()-t < minutes*60:
        for pg in opt.param_groups: pg["lr"]=lr*min(1, n/400)*max(0.05, 1-(time.time()-t)/(minutes*60))
        i=int(rng.integers(len(data))); p,ls=data[i]
        r=rng.random()
        if r<0.35: state=p.default
        elif r<0.6: state=p.starts[p.evaluate(p.starts).order.argmin()]
        else: state=ls[int(rng.integers(len(ls)))].state if ls else p.default
        passes=policy.passes(inputs[i], start=state)
        cost0=p.evaluate(state[None]).order[0]
        L=0
        own=torch.from_numpy(state)
        for logs in passes:
            lg=logs[0]; d=torch.multinomial(lg.detach().exp(), S, replacement=True, generator=gen).T
            share=2.0**-torch.randint(0,6,(S,1),generator=gen)
            keep=torch.rand(d.shape, generator=gen)<share
            dec=torch.where(keep, d, own)
            o=p.evaluate(dec.numpy()).order
            rew=torch.from_numpy(-np.log(np.minimum(o/cost0, 4.0))).float()
            # baseline per share
            adv=rew.clone()
            for k in range(6):
                m=(share[:,0]==2.0**-k)
                if m.any(): adv[m]=(rew[m]-rew[m].mean())/(rew[m].std()+0.02) if m.sum()>1 else 0
            lp=lg.gather(1,d.T).T
            L=L-(adv[:,None]*lp*keep).sum(1).mean()/ (len(state)**0.5)
            L=L+ent*(lg.exp()*lg.clamp(min=-1e4)).sum(1).mean()
        (L/len(passes)/8).backward(); n+=1
        acc.append((float(rew.mean()), float(rew.max()), float((rew>1e-6).float().mean())))
        if n%8==0:
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0); opt.step(); opt.zero_grad()
        if n%1000==0: print(n, np.mean(acc[-1000:],0).round(4), round(time.time()-t), flush=True); torch.save({"policy":policy.state_dict(),"shape":policy.shape.model_dump()}, f"/tmp/rl_{tag}.pt")
    torch.save({"policy":policy.state_dict(),"shape":policy.shape.model_dump()}, f"/tmp/rl_{tag}.pt")
