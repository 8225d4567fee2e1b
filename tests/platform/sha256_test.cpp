// Goal    Sha256 gives the standard's values, of any length, in any parts.
// Method  examples of FIPS 180-4 and of NIST's SHA256ShortMsg; lengths around a block against
//         values of Python's hashlib; random lengths cut at random against the whole.
#include "platform/cpu/sha256.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace tarn::sha256_test {
namespace {

std::string sha256_of(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish().data();
}
std::string sha256_of(const std::string& text) { return sha256_of(std::as_bytes(std::span(text))); }

TEST_CASE("SHA-256 has the standard's values") {
  struct Case {
    std::string text;
    const char* sha256;
  };
  const Case kCases[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"\xd3", "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1"},
      {"\x11\xaf", "5ca7133fa735326081558ac312c620eeca9970d1e70a4b95533d956f072d1f98"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1000000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const Case& c : kCases) CHECK(sha256_of(c.text) == c.sha256);
}

TEST_CASE("lengths around a block have the values of Python's hashlib") {
  // sha256(bytes(i * 7 % 256 for i in range(n)))
  struct Case {
    u64 n_bytes;
    const char* sha256;
  };
  constexpr Case kCases[] = {
      {1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"},
      {55, "576a1bf8d4478657e6dc4af9398544765c2a92cde28478b019235cfed315fc09"},
      {56, "9b20501dfd1d99161c257950f3444f3e49230c351c5c8e0943ef369f85f5205d"},
      {63, "30b345906b493f06f69444b6521113511c242f30e29840462950035043682f1e"},
      {64, "d8bc63b4fc1156e5e7d95a418b9bf54cd3174bedbc2db40f74895349b229b3c0"},
      {65, "1ee23b0fbcaecc1aff4a9e8f1645f35ab2c8e13609cd73b68df8b5e3f63ce073"},
      {119, "7a6589821178918ca8d9edaba5abfc1e9b2669564f4469b66885379c1530b2c8"},
      {120, "655250427d56b1b0eeb8497d21428704273458a01772d6881b65c0abac0f8a98"},
      {127, "67d79933e3c9aa8e89f481e071cfca1e9a16c09d7263b5efa3bb01f1a9f8d065"},
      {128, "54c9eb041badfd7064645067b107661fed6113197ce2dd066ba69618abd3732f"},
      {129, "5b55715b51c54661ed0cbd75ba5b00cf1ffee3b7c113a636eca613d9425116a6"},
      {4095, "6f18519264a07cbda54c9b4994ae2255353e34654ecbedb0bc71400fc29516de"},
      {4096, "d010f6d76d0eb4dce5d5b5b34014a8a157ec4380a66c24d7d455a9bf652db14a"},
      {8193, "2cd85effdd50c329ffb87d47cfcb4f5be15ea7d22ee302379f61fdf24ea5b89e"},
  };
  std::vector<std::byte> bytes(8193);
  for (u64 i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 256);
  for (const Case& c : kCases) {
    CAPTURE(c.n_bytes);
    CHECK(sha256_of(std::span(bytes).first(c.n_bytes)) == c.sha256);
    Sha256 by_byte;
    for (u64 i = 0; i < c.n_bytes; ++i) by_byte.add(std::span(bytes).subspan(i, 1));
    CHECK(std::string(by_byte.finish().data()) == c.sha256);
  }
}

TEST_CASE("parts of any length and alignment give the value of the whole") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  std::vector<std::byte> bytes(20000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  for (u32 trial = 0; trial < 200; ++trial) {
    const std::span<const std::byte> whole =
        std::span(bytes).subspan(random.below(64), random.below(19000));
    Sha256 hash;
    for (std::span<const std::byte> rest = whole; !rest.empty();) {
      const u64 n_bytes = std::min<u64>(rest.size(), random.below(trial % 2 == 0 ? 130 : 5000));
      hash.add(rest.first(n_bytes));
      rest = rest.subspan(n_bytes);
    }
    CHECK(std::string(hash.finish().data()) == sha256_of(whole));
  }
}

TEST_CASE("digits are compared in either case, and all of them") {
  const Sha256::Text text = Sha256().finish();
  std::string digits = text.data();
  CHECK(is_same_sha256(digits, text));
  for (char& c : digits) {
    if (c >= 'a') c = static_cast<char>(c - 32);
  }
  CHECK(is_same_sha256(digits, text));
  CHECK_FALSE(is_same_sha256("", text));
  CHECK_FALSE(is_same_sha256(digits.substr(1), text));
  CHECK_FALSE(is_same_sha256(digits + "0", text));
  digits.back() = '6';
  CHECK_FALSE(is_same_sha256(digits, text));
}

}  // namespace
}  // namespace tarn::sha256_test
