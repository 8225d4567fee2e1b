// How the rows of prompts are divided between tenants: deficit round robin by tokens (Shreedhar and
// Varghese, SIGCOMM 1996). One ring for each priority: background work costs a tenant nothing of
// its interactive share.
//
//   round       the turn goes from tenant to tenant; a tenant whose turn begins gets kQuantum rows
//   charge      rows of answers are served in any case, and are charged like rows of prompts
//   invariant   -kDebtMax <= deficit <= kQuantum; a tenant without a prompt has deficit <= 0
//   alone       rounds that serve no tenant pass at once, so a lone tenant gets every row
//   bound       a prompt of n rows whose tenant has no debt waits for at most
//               ceil(n / kQuantum) * kQuantum rows of each other tenant with prompts
//   memory      lent: one account a tenant and priority; no heap
//   thread      the engine's
//
// Differs from the paper: a row is the unit, so a turn can end anywhere and goes on in the next
// step; charges make deficits negative; debt beyond kDebtMax is forgiven.
#pragma once

#include <array>
#include <span>

#include "platform/base/types.h"
#include "runtime/step/batch.h"

namespace tarn::step {

class ShareRing {
 public:
  static constexpr i32 kQuantum = 32;             // rows: a second of an 8B on two cores
  static constexpr i32 kDebtMax = 16 * kQuantum;  // rows

  struct Account {
    i32 deficit = 0;       // rows; negative: debt
    u32 n_charged = 0;     // of this step: rows of answers
    u32 n_wanted = 0;      // of this step: rows of prompts that are ready
    u32 n_given = 0;       // of this step: what divide() gave, at most n_wanted
    u32 next_session = 0;  // the tenant's prompts are served in turn, from this session's on
  };

  void init(std::span<Account> accounts);  // [n_tenants]

  // Forgets the last step's rows. Between begin_step() and divide() the caller adds to n_charged
  // and to n_wanted.
  void begin_step();
  // Sets n_given of each account. Returns their sum: n_rows, or all that is wanted.
  u32 divide(u32 n_rows);

  std::span<Account> accounts() { return accounts_; }
  // Turns until this tenant's begins; last is the tenant whose turn it is.
  u32 n_turns_before(u32 tenant) const;

  u32 next_single =
      0;  // where not all single rows fit, they are served in turn from this session's

 private:
  void charge(bool prompts_wait);

  std::span<Account> accounts_{};
  u32 turn_ = 0;  // this tenant has had its quantum, and may not have used it yet
};

class Shares {
 public:
  static constexpr u32 kAccounts = std::size(kPriorities);  // of a tenant

  void init(std::span<ShareRing::Account> accounts);  // [n_tenants * kAccounts]
  ShareRing& of(Priority priority) { return rings_[static_cast<u64>(priority)]; }
  const ShareRing& of(Priority priority) const { return rings_[static_cast<u64>(priority)]; }

 private:
  std::array<ShareRing, kAccounts> rings_{};
};

}  // namespace tarn::step
