#include "runtime/step/shares.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::step {

void ShareRing::init(std::span<Account> accounts) {
  accounts_ = accounts;
  std::ranges::fill(accounts_, Account{});
  turn_ = next_single = 0;
}

void ShareRing::begin_step() {
  for (Account& each : accounts_) each.n_charged = each.n_wanted = each.n_given = 0;
}

u32 ShareRing::n_turns_before(u32 tenant) const {
  const u32 n = static_cast<u32>(accounts_.size());
  return (tenant + n - turn_ - 1) % n;
}

// Passes rounds that would serve no tenant at once: until a tenant whose prompts wait, or where
// none does, a tenant with answers, is out of debt. Debts keep their differences.
void ShareRing::charge(bool prompts_wait) {
  i32 highest = -kDebtMax;
  bool is_idle = true;
  for (Account& each : accounts_) {
    const i64 charged = i64{each.deficit} - each.n_charged;
    each.deficit = static_cast<i32>(std::max<i64>(charged, -kDebtMax));
    if (each.n_wanted == 0) each.deficit = std::min(each.deficit, 0);
    if ((prompts_wait ? each.n_wanted : each.n_charged) == 0) continue;
    highest = std::max(highest, each.deficit);
    is_idle = false;
  }
  if (is_idle || highest >= 0) return;
  for (Account& each : accounts_) each.deficit = std::min(each.deficit - highest, 0);
}

u32 ShareRing::divide(u32 n_rows) {
  u64 n_wanted = 0;
  for (const Account& each : accounts_) n_wanted += each.n_wanted;
  charge(n_wanted > 0);
  const u32 n_divided = static_cast<u32>(std::min<u64>(n_rows, n_wanted));
  for (u32 n_left = n_divided; n_left > 0;) {
    Account& served = accounts_[turn_];
    const u32 n_credit = static_cast<u32>(std::max(served.deficit, 0));
    const u32 n = std::min({n_left, served.n_wanted - served.n_given, n_credit});
    served.n_given += n;
    served.deficit -= static_cast<i32>(n);
    n_left -= n;
    if (n_left == 0) break;  // the next step goes on with this turn
    if (served.n_given == served.n_wanted) served.deficit = std::min(served.deficit, 0);
    turn_ = (turn_ + 1) % static_cast<u32>(accounts_.size());
    Account& next = accounts_[turn_];
    const i32 credit_max = next.n_given < next.n_wanted ? kQuantum : 0;
    next.deficit = std::min(next.deficit + kQuantum, credit_max);
  }
  return n_divided;
}

void Shares::init(std::span<ShareRing::Account> accounts) {
  TARN_ASSERT(accounts.size() % kAccounts == 0);
  const u64 n_tenants = accounts.size() / kAccounts;
  for (u64 i = 0; i < kAccounts; ++i) rings_[i].init(accounts.subspan(i * n_tenants, n_tenants));
}

}  // namespace tarn::step
