#include "platform/cpu/os_thread.h"

#include <sched.h>
#include <signal.h>

#include "platform/base/assert.h"

namespace tarn {

OsThread::~OsThread() { join(); }

void* OsThread::entry(void* self) {
  auto* thread = static_cast<OsThread*>(self);
  thread->body_(thread->context_);
  return nullptr;
}

Result<void> OsThread::start(const Task& task) {
  TARN_ASSERT(!running_);
  body_ = task.body;
  context_ = task.context;

  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (task.stack_bytes != 0) pthread_attr_setstacksize(&attributes, task.stack_bytes);
  // A thread inherits the mask, so it is set around the creation: the thread never runs without it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int status = pthread_create(&thread_, &attributes, &OsThread::entry, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (status != 0) {
    return fail({.status = Status::io_failed,
                 .hint = "the system refused a thread: raise the limit of processes (ulimit -u, or "
                         "TasksMax of the unit), or lower cpu.threads",
                 .figures = {{{"errno", static_cast<u64>(status)}}}});
  }
  running_ = true;
  pthread_setname_np(thread_, task.name);
  if (!task.cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const u32 cpu : task.cpus) {
      if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
    }
    pthread_setaffinity_np(thread_, sizeof set, &set);
  }
  return {};
}

void OsThread::join() {
  if (!running_) return;
  pthread_join(thread_, nullptr);
  running_ = false;
}

void OsThread::detach() {
  if (!running_) return;
  pthread_detach(thread_);
  running_ = false;
}

}  // namespace tarn
