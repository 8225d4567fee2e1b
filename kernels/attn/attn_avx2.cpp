#include "kernels/attn/attn_vector.h"
#include "kernels/attn/kv_store_vector.h"
#include "kernels/common/f32x_avx2.h"

namespace tarn::kernels {

void attn_avx2(const AttnArgs& args) { AttnVector<F32x>(args).run(); }
void kv_store_avx2(const KvStoreArgs& args) { KvStoreVector<F32x>::store(args); }

}  // namespace tarn::kernels
