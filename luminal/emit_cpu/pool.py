"""The thread pool, in IR: work is cut into chunks that threads claim, and the caller works too.

    luminal_pool_run(ptr pool, ptr function, ptr context, i64 chunks, i32 threads)

calls `function(ptr context, i64 chunk, i32 worker)` for every chunk, with `worker` in [0, threads) and no two
at once with one number. The caller is worker 0. It waits only for chunks that somebody has claimed, so that a
worker which the system does not schedule delays nothing. Threads are started when a call first wants them;
idle ones sleep after a short spin. Where the pool is busy (a second caller, or a call from inside a chunk),
all chunks run on the calling thread as worker 0, which is safe since workspaces belong to calls. After a fork
the child starts with no threads.

The pool's first word is the address of luminal_pool_run, which is how kernels find it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from luminal.emit_cpu.cache import cached_object
from luminal.emit_cpu.jit import Library, Target, keep_for_ever, load_object

MOST_WORKERS = 255
SPINS = 4000
_BYTES = 1024 + 16 * (MOST_WORKERS + 1)
_CLOSED = 0xFFFFFFFF

# Offsets in the pool, each group on a cache line of its own:
#   0 run, 8 busy, 12 started | 64 ticket: generation << 32 | next chunk | 128 finished chunks   192 function,
# 200 context, 208 chunks, 216 threads | 256 sleepers | 384 mutex | 512 condition | 1024 worker records A
# ticket is closed (no chunk to claim) while the job's fields change. A worker reads the fields between
# reading the ticket and claiming with a compare-and-exchange, so that a claim succeeds only with fields of
# the ticket's own job.
_TEXT = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
PAUSE_DECLARATION

define internal void @work(ptr %pool, i32 %generation, i32 %worker) nounwind {
entry:
  %ticket.p = getelementptr i8, ptr %pool, i64 64
  %finished.p = getelementptr i8, ptr %pool, i64 128
  %function.p = getelementptr i8, ptr %pool, i64 192
  %context.p = getelementptr i8, ptr %pool, i64 200
  %chunks.p = getelementptr i8, ptr %pool, i64 208
  %threads.p = getelementptr i8, ptr %pool, i64 216
  br label %look
look:
  %ticket = load atomic i64, ptr %ticket.p acquire, align 8
  %high = lshr i64 %ticket, 32
  %now = trunc i64 %high to i32
  %same = icmp eq i32 %now, %generation
  br i1 %same, label %read, label %leave
read:
  %function = load atomic ptr, ptr %function.p acquire, align 8
  %context = load atomic ptr, ptr %context.p acquire, align 8
  %chunks = load atomic i64, ptr %chunks.p acquire, align 8
  %threads = load atomic i32, ptr %threads.p acquire, align 4
  %chunk = and i64 %ticket, 4294967295
  %more = icmp ult i64 %chunk, %chunks
  %mine = icmp slt i32 %worker, %threads
  %try = and i1 %more, %mine
  br i1 %try, label %claim, label %leave
claim:
  %next = add i64 %ticket, 1
  %exchange = cmpxchg ptr %ticket.p, i64 %ticket, i64 %next acq_rel monotonic, align 8
  %won = extractvalue {i64, i1} %exchange, 1
  br i1 %won, label %run, label %look
run:
  call void %function(ptr %context, i64 %chunk, i32 %worker)
  %before = atomicrmw add ptr %finished.p, i32 1 release
  br label %look
leave:
  ret void
}

define internal ptr @thread(ptr %record) nounwind {
entry:
  %pool = load ptr, ptr %record
  %worker.p = getelementptr i8, ptr %record, i64 8
  %worker = load i32, ptr %worker.p
  %ticket.p = getelementptr i8, ptr %pool, i64 64
  %sleepers.p = getelementptr i8, ptr %pool, i64 256
  %mutex = getelementptr i8, ptr %pool, i64 384
  %condition = getelementptr i8, ptr %pool, i64 512
  br label %idle
idle:
  %last = phi i32 [0, %entry], [%fresh, %busy]
  br label %spin
spin:
  %count = phi i32 [0, %idle], [%counted, %again]
  %ticket = load atomic i64, ptr %ticket.p acquire, align 8
  %high = lshr i64 %ticket, 32
  %seen = trunc i64 %high to i32
  %same = icmp eq i32 %seen, %last
  br i1 %same, label %again, label %busy
again:
  PAUSE
  %counted = add i32 %count, 1
  %patient = icmp ult i32 %counted, SPINS
  br i1 %patient, label %spin, label %sleep
sleep:
  call i32 @pthread_mutex_lock(ptr %mutex)
  %s1 = atomicrmw add ptr %sleepers.p, i32 1 seq_cst
  br label %check
check:
  %ticket2 = load atomic i64, ptr %ticket.p seq_cst, align 8
  %high2 = lshr i64 %ticket2, 32
  %seen2 = trunc i64 %high2 to i32
  %same2 = icmp eq i32 %seen2, %last
  br i1 %same2, label %wait, label %woken
wait:
  call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
woken:
  %s2 = atomicrmw sub ptr %sleepers.p, i32 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %busy
busy:
  %fresh = phi i32 [%seen, %spin], [%seen2, %woken]
  call void @work(ptr %pool, i32 %fresh, i32 %worker)
  br label %idle
}

define void @luminal_pool_init(ptr %pool) nounwind {
entry:
  %mutex = getelementptr i8, ptr %pool, i64 384
  %condition = getelementptr i8, ptr %pool, i64 512
  store ptr @luminal_pool_run, ptr %pool
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}

define void @luminal_pool_run(ptr %pool, ptr %function, ptr %context, i64 %chunks, i32 %threads) nounwind {
entry:
  %busy.p = getelementptr i8, ptr %pool, i64 8
  %started.p = getelementptr i8, ptr %pool, i64 12
  %ticket.p = getelementptr i8, ptr %pool, i64 64
  %finished.p = getelementptr i8, ptr %pool, i64 128
  %function.p = getelementptr i8, ptr %pool, i64 192
  %context.p = getelementptr i8, ptr %pool, i64 200
  %chunks.p = getelementptr i8, ptr %pool, i64 208
  %threads.p = getelementptr i8, ptr %pool, i64 216
  %sleepers.p = getelementptr i8, ptr %pool, i64 256
  %mutex = getelementptr i8, ptr %pool, i64 384
  %condition = getelementptr i8, ptr %pool, i64 512
  %handle = alloca i64
  %one.thread = icmp slt i32 %threads, 2
  %one.chunk = icmp slt i64 %chunks, 2
  %too.many = icmp uge i64 %chunks, CLOSED
  %little = or i1 %one.thread, %one.chunk
  %alone = or i1 %little, %too.many
  br i1 %alone, label %inline, label %enter
enter:
  %exchange = cmpxchg ptr %busy.p, i32 0, i32 1 acq_rel monotonic, align 4
  %entered = extractvalue {i32, i1} %exchange, 1
  br i1 %entered, label %grow, label %inline
grow:
  %started = load i32, ptr %started.p
  %number = add i32 %started, 1
  %wanted = icmp slt i32 %number, %threads
  %possible = icmp sle i32 %number, MOST_WORKERS
  %start = and i1 %wanted, %possible
  br i1 %start, label %create, label %publish
create:
  %wide = sext i32 %number to i64
  %distance = mul i64 %wide, 16
  %where = add i64 %distance, 1024
  %record = getelementptr i8, ptr %pool, i64 %where
  %record.worker = getelementptr i8, ptr %record, i64 8
  store ptr %pool, ptr %record
  store i32 %number, ptr %record.worker
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @thread, ptr %record)
  %made = icmp eq i32 %failed, 0
  br i1 %made, label %created, label %publish
created:
  store i32 %number, ptr %started.p
  br label %grow
publish:
  %old = load atomic i64, ptr %ticket.p monotonic, align 8
  %closed = or i64 %old, CLOSED
  store atomic i64 %closed, ptr %ticket.p seq_cst, align 8
  store atomic ptr %function, ptr %function.p release, align 8
  store atomic ptr %context, ptr %context.p release, align 8
  store atomic i64 %chunks, ptr %chunks.p release, align 8
  store atomic i32 %threads, ptr %threads.p release, align 4
  store atomic i32 0, ptr %finished.p monotonic, align 4
  %old.high = lshr i64 %old, 32
  %new.high = add i64 %old.high, 1
  %generation = trunc i64 %new.high to i32
  %ticket = shl i64 %new.high, 32
  store atomic i64 %ticket, ptr %ticket.p seq_cst, align 8
  %asleep = load atomic i32, ptr %sleepers.p seq_cst, align 4
  %all.awake = icmp eq i32 %asleep, 0
  br i1 %all.awake, label %help, label %wake
wake:
  call i32 @pthread_mutex_lock(ptr %mutex)
  call i32 @pthread_cond_broadcast(ptr %condition)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %help
help:
  call void @work(ptr %pool, i32 %generation, i32 0)
  br label %await
await:
  %spins = phi i32 [0, %help], [%spun, %pause], [0, %yield]
  %finished = load atomic i32, ptr %finished.p acquire, align 4
  %finished.wide = zext i32 %finished to i64
  %all = icmp eq i64 %finished.wide, %chunks
  br i1 %all, label %done, label %stay
stay:
  %spun = add i32 %spins, 1
  %long = icmp ugt i32 %spun, SPINS
  br i1 %long, label %yield, label %pause
pause:
  PAUSE
  br label %await
yield:
  call i32 @sched_yield()
  br label %await
done:
  store atomic i32 0, ptr %busy.p release, align 4
  ret void
inline:
  %some = icmp sgt i64 %chunks, 0
  br i1 %some, label %each, label %leave
each:
  %chunk = phi i64 [0, %inline], [%following, %each]
  call void %function(ptr %context, i64 %chunk, i32 0)
  %following = add i64 %chunk, 1
  %further = icmp slt i64 %following, %chunks
  br i1 %further, label %each, label %leave
leave:
  ret void
}
"""
PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def pool_text(target: Target) -> str:
    """The pool's module for a target."""
    family = "aarch64" if target.is_arm else "x86_64"
    declaration, pause = PAUSES[family]
    text = _TEXT.replace("PAUSE_DECLARATION", declaration).replace("PAUSE", pause)
    return (
        text.replace("SPINS", str(SPINS))
        .replace("CLOSED", str(_CLOSED))
        .replace("MOST_WORKERS", str(MOST_WORKERS))
    )


class Pool:
    """One pool; `handle` is the address that kernels take. Its threads live as long as the process."""

    def __init__(self) -> None:
        target = Target.host()
        names = ["luminal_pool_init", "luminal_pool_run"]
        self.library: Library = load_object(cached_object(pool_text(target), target)[0], names)
        self._memory: Any = ctypes.create_string_buffer(_BYTES + 64)
        self.handle: int = -(-ctypes.addressof(self._memory) // 64) * 64
        self._initialize: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.library["luminal_pool_init"])
        self.reset()
        keep_for_ever(self)

    def reset(self) -> None:
        """As new, at the same address, without threads: what a forked child needs."""
        ctypes.memset(self.handle, 0, _BYTES)
        self._initialize(self.handle)

    @property
    def started(self) -> int:
        """How many threads it has started besides its callers."""
        return ctypes.c_int32.from_address(self.handle + 12).value


_pool: Pool | None = None
_lock = threading.Lock()


def process_pool() -> Pool:
    """The one pool of this process, made on first use."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = Pool()
        return _pool


def _reset_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    if _pool is not None:
        _pool.reset()


os.register_at_fork(after_in_child=_reset_in_child)
