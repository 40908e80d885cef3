#include "settings/config.h"

namespace hvd {

const std::vector<Setting>& SettingsTable() {
  static const std::vector<Setting> table = {
      // How tensors travel.
      {"HOROVOD_FUSION_THRESHOLD", "bytes", "134217728",
       "Largest number of bytes of tensors that are fused into one collective; 0 = no "
       "fusion. A batch closes at 8 MiB, or at this if it is less."},
      {"HOROVOD_CYCLE_TIME", "number", "1.0",
       "Milliseconds without a new tensor after which a batch closes at the latest."},
      {"HOROVOD_BATCH_BYTES", "bytes", "",
       "A batch closes when this many bytes are ready; unset = HOROVOD_FUSION_THRESHOLD, at "
       "most 8 MiB."},
      {"HOROVOD_BATCH_WINDOW_MS", "number", "",
       "Milliseconds without a new tensor after which a batch closes; unset = "
       "HOROVOD_CYCLE_TIME, at most 0.5."},
      {"HOROVOD_DIRECT_BYTES", "bytes", "",
       "Largest allreduce that every rank computes as a whole; unset = depends on the "
       "transport and the number of ranks."},
      {"HOROVOD_CACHE_CAPACITY", "integer", "",
       "Number of operations whose descriptions are cached; when it is exceeded, the cache "
       "starts afresh. Unset = 65536, 0 = no cache."},
      {"HOROVOD_LEARNED_SCHEDULE", "flag", "1",
       "After some steps that were alike, the ranks go on without negotiation until one of "
       "them does something else."},
      {"HOROVOD_TRANSPORT", "choice", "auto",
       "auto, shm or tcp; with tcp, processes of one machine use it, too."},
      {"HOROVOD_DATA_LINKS", "integer", "1",
       "TCP connections over which a rank's data to another one are spread, from 1 to 4; must be "
       "the same on all ranks."},
      {"HOROVOD_ENCRYPT", "flag", "0",
       "Encrypt what ranks send each other over TCP (AES-256-GCM by OpenSSL's libcrypto); "
       "must be the same on all ranks."},
      {"HOROVOD_SHM_CHUNK_BYTES", "bytes", "131072",
       "Largest part of a tensor that a rank stages in shared memory at once, rounded up to "
       "4 KiB; must be the same on all ranks."},
      {"HOROVOD_SHM_STAGING_SLOTS", "integer", "4",
       "How many such parts a rank may have staged at a time; must be the same on all ranks."},
      {"HOROVOD_CPU_OPERATIONS", "choice", "host",
       "Library that reduces tensors on the CPU: host (built in), gloo or mpi."},
      {"HOROVOD_GPU_OPERATIONS", "choice", "nccl",
       "How tensors on GPUs travel: nccl (by NCCL if all ranks have it) or host (staged in "
       "host memory)."},
      {"HOROVOD_NCCL_HOME", "path", "",
       "Folder with the NCCL to use in its lib or lib64; unset = a framework's NCCL, or an "
       "installed one."},
      {"HOROVOD_NCCL_LIB", "path", "",
       "Folder or file of the NCCL to use; takes precedence over HOROVOD_NCCL_HOME."},
      {"HOROVOD_CONTROLLER", "choice", "gloo",
       "How ranks that MPI has started learn the job's address and secret: gloo (without "
       "MPI: by the launcher's own means, or HOROVOD_SECRET_FILE) or mpi."},
      {"HOROVOD_GLOO_TIMEOUT_SECONDS", "number", "30",
       "Seconds without progress after which a call of Gloo fails."},
      {"HOROVOD_MPI_THREADS_DISABLE", "flag", "0",
       "Call MPI from one thread at a time; process sets then do not use it."},
      {"HOROVOD_THREAD_AFFINITY", "list", "",
       "Core for the background thread of each local rank, such as 0,2,4."},
      {"HOROVOD_AUTOTUNE", "flag", "0",
       "Tune the fusion threshold, the batch window and the choice of algorithms while the "
       "program runs."},
      {"HOROVOD_AUTOTUNE_LOG", "path", "", "CSV file to which rank 0 writes each sample."},
      {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "integer", "3",
       "Number of samples that are dropped at the beginning."},
      {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "integer", "10",
       "Number of training steps that are measured for one sample."},
      {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "integer", "20",
       "Number of samples of the search (at most 200); the best few are measured again "
       "before one is chosen."},
      {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "number", "0.8",
       "How noisy samples are assumed to be: 0 = not at all, 1 = as much as they differ."},
      // What is reported.
      {"HOROVOD_LOG_LEVEL", "choice", "warning",
       "Lowest level that is logged: trace, debug, info, warning, error or fatal."},
      {"HOROVOD_LOG_HIDE_TIME", "flag", "0", "Log without the time."},
      {"HOROVOD_FULL_TRACEBACK", "flag", "0",
       "Show calls within horovod in tracebacks; otherwise one line stands for them."},
      {"HOROVOD_SHOW_API_VERSION", "flag", "0",
       "Make horovod.__version__ that of the API, 0.28.1, for programs that require exactly "
       "this version."},
      {"HOROVOD_TIMELINE", "path", "",
       "File to which rank 0 writes the timeline; if the name contains {rank}, every rank "
       "writes one. DYNAMIC: see hvd.start_timeline()."},
      {"HOROVOD_TIMELINE_MARK_CYCLES", "flag", "0",
       "Mark in the timeline each batch that is executed."},
      // What the program may do.
      {"HOROVOD_DYNAMIC_PROCESS_SETS", "flag", "0",
       "Allow hvd.add_process_set() and hvd.remove_process_set(), as "
       "hvd.init(process_sets=\"dynamic\") does."},
      // Failures.
      {"HOROVOD_STALL_CHECK_DISABLE", "flag", "0",
       "Do not report tensors that some ranks have not submitted."},
      {"HOROVOD_STALL_CHECK_TIME_SECONDS", "number", "10",
       "Seconds after which a stalled tensor is reported; 0 = at once."},
      {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "number", "0",
       "Seconds after which a stalled tensor fails the job; 0 = only a proven deadlock does."},
      {"HOROVOD_STALL_DEADLOCK_TIME_SECONDS", "number", "60",
       "Seconds after which a stalled tensor fails the job if every rank is waiting in the "
       "library; 0 = never."},
      {"HOROVOD_CHECK_NONFINITE", "flag", "0",
       "Look for NaN and Inf in each gradient before it is reduced; if there are any, all "
       "ranks raise an error in the same step."},
      {"HOROVOD_CHECK_FIRST_STEP", "flag", "1",
       "Compare the parameters of all ranks once, after the first step, and warn if they "
       "differ."},
      {"HOROVOD_SYNCHRONIZE_IN_BACKWARD", "flag", "0",
       "Create every DistributedOptimizer of torch with synchronize_in_backward=True, for a "
       "program that clips gradients in flight and cannot be changed."},
      {"HOROVOD_CHECK_PARAMETERS_EVERY", "integer", "0",
       "N compares the parameters of all ranks before the first step and then every N steps; "
       "0 = never."},
      {"HOROVOD_ONE_PROCESS_GRADIENTS", "flag", "0",
       "Make the gradients of allgather, broadcast and reducescatter those of one process "
       "with the data of all ranks, instead of those of Horovod 0.28."},
      {"HOROVOD_HEARTBEAT_SECONDS", "number", "1.0", "Seconds between two heartbeats to a peer."},
      {"HOROVOD_PEER_TIMEOUT_SECONDS", "number", "6.0",
       "Seconds of silence after which a peer is considered lost."},
      {"HOROVOD_STOPPED_TIMEOUT_SECONDS", "number", "600",
       "Seconds to wait for a rank that a signal, a debugger or a paused container has "
       "stopped, if another process of its host can see that; at least "
       "HOROVOD_PEER_TIMEOUT_SECONDS."},
      {"HOROVOD_FAILPOINT", "text", "",
       "For tests: name@count:rankR:action stops or kills a rank at a given point of its "
       "work."},
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
       "Set to 1 by horovodrun for the processes of an elastic job. Then even a job of one "
       "process reduces its gradients, optimizers are compared at their first step instead "
       "of when they are created, and TensorFlow's graphs ask for the number of ranks at "
       "each run."},
      {"HOROVOD_ELASTIC_ADDR", "text", "",
       "Address at which horovodrun tells the processes of an elastic job their ranks. Set "
       "by horovodrun."},
      {"HOROVOD_ELASTIC_WORKER", "integer", "",
       "Number of this process among all that an elastic job has started. Set by horovodrun."},
      {"HOROVOD_CHECKPOINT_DIR", "text", "",
       "Folder to which elastic training writes its state from time to time, and from which "
       "it resumes."},
      {"HOROVOD_CHECKPOINT_PICKLE", "flag", "0",
       "Write to checkpoints with pickle whatever cannot be stored otherwise, and unpickle "
       "it; only for folders that nobody else can write to."},
      {"HOROVOD_PREEMPTION_SIGNAL", "text", "",
       "Signal, such as USR1, that asks a worker of an elastic job to end at its next "
       "commit, as SIGTERM does."},
      {"HOROVOD_PREEMPTION_FILE", "text", "",
       "horovodrun leaves a host of an elastic job when a file of this name exists on it; "
       "{host} in the name stands for the host."},
      {"HOROVOD_METRICS", "text", "",
       "Where horovodrun reports the progress of the job: a port or HOST:PORT for "
       "Prometheus, a file, or several of these separated by commas. Each rank then reports "
       "once a second."},
      {"HOROVOD_START_TIMEOUT", "number", "30",
       "Seconds for which the processes wait for each other at the start, and then at most "
       "for their links."},
      {"HOROVOD_NETWORK_INTERFACES", "text", "",
       "Interfaces through which ranks of different hosts communicate, such as eth0,eth1; "
       "unset = by route."},
      {"HOROVOD_GLOO_IFACE", "text", "",
       "The same, under its name in Horovod; HOROVOD_NETWORK_INTERFACES takes precedence."},
      {"HOROVOD_PORT_RANGE", "text", "",
       "Ports to listen on, such as 20000-20999; unset = any free port."},
      {"HOROVOD_STORE_ADDR", "text", "",
       "Address of the rendezvous store; of several, separated by commas, the first that "
       "answers is used."},
      {"HOROVOD_SECRET_FILE", "path", "",
       "File with the job's secret, set by horovodrun, or by you if another launcher starts "
       "ranks on several hosts; hvd.init() removes it from the environment."},
      {"HOROVOD_SECRET_KEY", "secret", "",
       "The secret itself, where there can be no such file; hvd.init() erases it from the "
       "environment."},
  };
  return table;
}

}  // namespace hvd
