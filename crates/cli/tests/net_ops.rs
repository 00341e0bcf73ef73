//! Sockets, provided buffers, registered files, futexes, child processes and extended attributes,
//! as C programs see them through a ring: each program on the engine and on the kernel's ring.

mod common;

use common::oracle;

oracle::compare! {
    /// Readiness that arrives at every moment of arming.
    net_edges,
    /// DEFER_TASKRUN: deferred CQEs keep their order.
    net_defer,
    /// Bundles, SEND_ZC and its notifications.
    net_zc,
    /// Sockets: connect, accept, send, receive, shutdown.
    net_ops,
    /// Receives on sockets that are shut down.
    net_shutdown,
    /// Provided buffers and registered files.
    net_buffers,
    /// An echo server with clients in another process.
    net_echo,
    /// A thousand pending receives with IOSQE_ASYNC occupy no worker.
    net_async,
    /// IOSQE_ASYNC on light transfers.
    net_hint,
    /// Pipes, MSG_RING, EPOLL_WAIT and others.
    more_ops,
    /// Extended attributes.
    xattr_ops,
    /// WAITID.
    waitid_ops,
    /// FUTEX_WAIT, FUTEX_WAITV, FUTEX_WAKE.
    futex_ops,
    /// Futex waits among wakes and cancels under load: none is lost.
    futex_load,
}

/// `uringlet run` hands every request with IOSQE_ASYNC to a worker.
const WORKER: &str = "--iosqe-async=worker";

/// Thousands of connections that come and go at random; every byte is checked.
mod net_chaos {
    use super::{WORKER, oracle};

    const PROGRAM: &str = "net_chaos";

    /// Seed, connections and the use of the ring. A failure prints its seed; `net_chaos SEED 2000
    /// USE` repeats it. A number as the use is the limit of workers of each class.
    const RUNS: [&[&str]; 9] = [
        &["1", "2000", "default"],
        &["2", "2000", "default"],
        &["3", "2000", "defer"],
        &["4", "2000", "workers"],
        &["5", "2000", "files"],
        &["6", "2000", "both"],
        &["7", "2000", "both"],
        &["8", "2000", "1"],
        &["9", "2000", "4"],
    ];

    #[test]
    fn engine() {
        RUNS.iter().for_each(|arguments| oracle::engine(PROGRAM, arguments));
    }

    #[test]
    fn kernel() {
        RUNS.iter().for_each(|arguments| oracle::kernel(PROGRAM, arguments));
    }

    #[test]
    fn engine_with_each_request_on_a_worker() {
        for (seed, how) in [("14", "workers"), ("16", "both"), ("18", "1"), ("19", "4")] {
            oracle::engine_with(&[WORKER], PROGRAM, &[seed, "2000", how]);
        }
    }
}

/// The options of `--iosqe-async`.
mod iosqe_async {
    use super::{WORKER, oracle};

    #[test]
    fn light_transfers_take_no_worker() {
        oracle::engine_with(&[], "net_hint", &["weighed"]);
    }

    #[test]
    fn light_transfers_take_a_worker_if_asked() {
        oracle::engine_with(&[WORKER], "net_hint", &["worker"]);
    }

    #[test]
    fn receives_that_workers_try_occupy_no_worker() {
        oracle::engine_with(&[WORKER], "net_async", &[]);
    }

    #[test]
    fn receives_without_the_hybrid_step_occupy_a_worker_each() {
        oracle::engine_with(&["--iosqe-async=block"], "net_async", &["block"]);
    }
}
