#include "kernels/common/f32x_avx2.h"
#include "kernels/pq/pq_pairs_vector.h"

namespace tarn::kernels {
namespace {

struct Pairs8 : PqPairsVector<F32x>, Singly {};

}  // namespace

u32 pq_pairs_avx2(const PqPairsArgs& args) { return choose_by_pairs<Pairs8>(args); }

}  // namespace tarn::kernels
