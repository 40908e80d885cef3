#include "settings/config.h"

namespace hvd {

const std::vector<Setting>& SettingsTable() {
  static const std::vector<Setting> table = {
      // How tensors travel.
      {"HOROVOD_FUSION_THRESHOLD", "bytes", "134217728",
       "Most bytes of tensors that travel in one collective; 0 = each alone. A batch closes at 8 "
       "MiB, or at "
       "this if it is less."},
      {"HOROVOD_CYCLE_TIME", "number", "1.0",
       "Most milliseconds of silence after which a batch of tensors closes."},
      {"HOROVOD_BATCH_BYTES", "bytes", "",
       "A batch closes when so much is ready; unset = HOROVOD_FUSION_THRESHOLD, at most 8 MiB."},
      {"HOROVOD_BATCH_WINDOW_MS", "number", "",
       "A batch closes after so many milliseconds of silence; unset = HOROVOD_CYCLE_TIME, at most "
       "0.5."},
      {"HOROVOD_DIRECT_BYTES", "bytes", "",
       "Largest allreduce that every rank computes whole; unset = by transport and number of "
       "ranks."},
      {"HOROVOD_CACHE_CAPACITY", "integer", "",
       "Of so many operations the description is cached, before the cache begins anew; unset = "
       "65536, "
       "0 = none."},
      {"HOROVOD_LEARNED_SCHEDULE", "flag", "1",
       "Once some steps were alike, the ranks go on without negotiating, until one of them does "
       "something else."},
      {"HOROVOD_TRANSPORT", "choice", "auto",
       "auto, shm or tcp; tcp is used between processes of one machine too."},
      {"HOROVOD_ENCRYPT", "flag", "0",
       "Encrypt what ranks send each other over TCP (AES-256-GCM by OpenSSL's libcrypto); the same "
       "on "
       "all ranks."},
      {"HOROVOD_SHM_CHUNK_BYTES", "bytes", "131072",
       "Largest part of a tensor that a rank stages in shared memory at once, rounded up to 4 KiB; "
       "the "
       "same on all ranks."},
      {"HOROVOD_SHM_STAGING_SLOTS", "integer", "4",
       "How many such parts a rank may have staged at a time; the same on all ranks."},
      {"HOROVOD_CPU_OPERATIONS", "choice", "host",
       "Library that reduces on the CPU: host (this one's own), gloo or mpi."},
      {"HOROVOD_GPU_OPERATIONS", "choice", "nccl",
       "Tensors on GPUs: nccl (by NCCL where all ranks have it) or host (staged in its memory)."},
      {"HOROVOD_NCCL_HOME", "path", "",
       "Folder whose lib or lib64 has the NCCL to use; unset = a framework's, or an installed "
       "one."},
      {"HOROVOD_NCCL_LIB", "path", "", "The folder or file of the NCCL to use, before the other."},
      {"HOROVOD_CONTROLLER", "choice", "gloo",
       "By what ranks that MPI has started learn the job's address and secret: gloo (no MPI: the "
       "launcher's own means, or HOROVOD_SECRET_FILE) or mpi."},
      {"HOROVOD_GLOO_TIMEOUT_SECONDS", "number", "30",
       "Seconds after which a call of Gloo that makes no progress fails."},
      {"HOROVOD_MPI_THREADS_DISABLE", "flag", "0",
       "Call MPI from one thread at a time; process sets then do without it."},
      {"HOROVOD_THREAD_AFFINITY", "list", "",
       "Core of the background thread of each local rank, such as 0,2,4."},
      {"HOROVOD_AUTOTUNE", "flag", "0",
       "Tune fusion threshold, batch window and algorithm choice while the program runs."},
      {"HOROVOD_AUTOTUNE_LOG", "path", "",
       "File of comma-separated values to which rank 0 writes each sample."},
      {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "integer", "3", "Samples dropped at the beginning."},
      {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "integer", "10",
       "Training steps measured for one sample."},
      {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "integer", "20",
       "Samples of the search (at most 200); the best few are measured again before one stays."},
      {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "number", "0.8",
       "How noisy samples are taken to be: 0 = not at all, 1 = as much as they differ."},
      // What is reported.
      {"HOROVOD_LOG_LEVEL", "choice", "warning",
       "Lowest level logged: trace, debug, info, warning, error or fatal."},
      {"HOROVOD_LOG_HIDE_TIME", "flag", "0", "Log without the time."},
      {"HOROVOD_FULL_TRACEBACK", "flag", "0",
       "Show in tracebacks also the calls within horovod, which one line stands for otherwise."},
      {"HOROVOD_SHOW_API_VERSION", "flag", "0",
       "horovod.__version__ is that of the API, 0.28.1, for programs that ask for just this one."},
      {"HOROVOD_TIMELINE", "path", "",
       "File that rank 0 writes the timeline to; with {rank} in it, every rank one. DYNAMIC: see "
       "hvd.start_timeline()."},
      {"HOROVOD_TIMELINE_MARK_CYCLES", "flag", "0",
       "Mark each batch that is carried out in the timeline."},
      // What the program may do.
      {"HOROVOD_DYNAMIC_PROCESS_SETS", "flag", "0",
       "Allow hvd.add_process_set() and hvd.remove_process_set(), as "
       "hvd.init(process_sets=\"dynamic\") "
       "does."},
      // Failures.
      {"HOROVOD_STALL_CHECK_DISABLE", "flag", "0",
       "Do not report tensors that some ranks have not submitted."},
      {"HOROVOD_STALL_CHECK_TIME_SECONDS", "number", "10",
       "Seconds after which a stalled tensor is reported; 0 = at once."},
      {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "number", "0",
       "Seconds after which a stalled tensor fails the job; 0 = only a proved deadlock does."},
      {"HOROVOD_STALL_DEADLOCK_TIME_SECONDS", "number", "60",
       "Seconds after which a stalled tensor fails the job if every rank waits in the library; 0 = "
       "never."},
      {"HOROVOD_CHECK_NONFINITE", "flag", "0",
       "Look for NaN and Inf in each gradient before it is reduced; all ranks raise in the same "
       "step."},
      {"HOROVOD_CHECK_FIRST_STEP", "flag", "1",
       "Compare the parameters of all ranks once, after the first step, and warn where they "
       "differ."},
      {"HOROVOD_SYNCHRONIZE_IN_BACKWARD", "flag", "0",
       "Make each DistributedOptimizer of torch with synchronize_in_backward=True, for a program "
       "that clips gradients in flight and cannot be changed."},
      {"HOROVOD_CHECK_PARAMETERS_EVERY", "integer", "0",
       "Compare the parameters of all ranks before the first and every so many steps; 0 = never."},
      {"HOROVOD_ONE_PROCESS_GRADIENTS", "flag", "0",
       "Gradients of allgather, broadcast and reducescatter are those of one process with the data "
       "of all ranks, instead of those of Horovod 0.28."},
      {"HOROVOD_HEARTBEAT_SECONDS", "number", "1.0",
       "Seconds between two signs of life to a peer."},
      {"HOROVOD_PEER_TIMEOUT_SECONDS", "number", "6.0",
       "Seconds of silence after which a peer counts as lost."},
      {"HOROVOD_STOPPED_TIMEOUT_SECONDS", "number", "600",
       "Seconds that a rank is waited for that a signal, a debugger or a paused container has "
       "stopped, where another process of its host can see that; at least "
       "HOROVOD_PEER_TIMEOUT_SECONDS."},
      {"HOROVOD_FAILPOINT", "text", "",
       "For tests: name@count:rankR:action stops or kills a rank at a point of its work."},
      // Who this process is, and how it meets the others.
      {"HOROVOD_RANK", "integer", "", "Rank of this process in the job."},
      {"HOROVOD_SIZE", "integer", "", "Number of processes in the job."},
      {"HOROVOD_LOCAL_RANK", "integer", "", "Rank of this process on its host."},
      {"HOROVOD_LOCAL_SIZE", "integer", "", "Number of processes on this host."},
      {"HOROVOD_CROSS_RANK", "integer", "",
       "Rank of this host among those that have this local rank."},
      {"HOROVOD_CROSS_SIZE", "integer", "", "Number of hosts that have this local rank."},
      {"HOROVOD_HOSTNAME", "text", "",
       "Name of this host, set by horovodrun; unset = the system's."},
      {"HOROVOD_ELASTIC", "flag", "0",
       "horovodrun sets 1 for the processes of an elastic job. A job of one process reduces its "
       "gradients too, then, optimizers are compared at their first step instead of when they are "
       "made, and TensorFlow's graphs ask for the number of ranks at each run."},
      {"HOROVOD_ELASTIC_ADDR", "text", "",
       "Where horovodrun tells the processes of an elastic job their ranks. It sets this."},
      {"HOROVOD_ELASTIC_WORKER", "integer", "",
       "Number of this process among all that an elastic job has started. horovodrun sets this."},
      {"HOROVOD_CHECKPOINT_DIR", "text", "",
       "Folder to which elastic training writes its state now and then, and from which it goes "
       "on."},
      {"HOROVOD_CHECKPOINT_PICKLE", "flag", "0",
       "Write to checkpoints by pickle what has no other form on disk, and unpickle it; only for "
       "folders that nobody else can write to."},
      {"HOROVOD_PREEMPTION_SIGNAL", "text", "",
       "A signal, such as USR1, that asks a worker of an elastic job to end at its next commit, as "
       "SIGTERM does."},
      {"HOROVOD_PREEMPTION_FILE", "text", "",
       "horovodrun leaves a host of an elastic job when there is a file of this name on it; {host} "
       "in it stands for the host."},
      {"HOROVOD_METRICS", "text", "",
       "Where horovodrun tells how far the job is: a port or HOST:PORT for Prometheus, a file, or "
       "several with commas between. With it, each rank reports once a second."},
      {"HOROVOD_START_TIMEOUT", "number", "30",
       "Seconds that the processes wait for each other at the start, and then at most for their "
       "links."},
      {"HOROVOD_NETWORK_INTERFACES", "text", "",
       "Interfaces on which ranks of different hosts meet, such as eth0,eth1; unset = by route."},
      {"HOROVOD_GLOO_IFACE", "text", "",
       "The same, by its name in Horovod; HOROVOD_NETWORK_INTERFACES goes before it."},
      {"HOROVOD_PORT_RANGE", "text", "",
       "Ports to listen on, such as 20000-20999; unset = any that is free."},
      {"HOROVOD_STORE_ADDR", "text", "",
       "Address of the rendezvous store; of several, with commas between, the first that answers."},
      {"HOROVOD_SECRET_FILE", "path", "",
       "File with the job's secret, set by horovodrun, or by you where another launcher starts "
       "ranks "
       "on several hosts; removed from the environment by init."},
      {"HOROVOD_SECRET_KEY", "secret", "",
       "The secret itself, where there can be no such file; erased from the environment by init."},
  };
  return table;
}

}  // namespace hvd
