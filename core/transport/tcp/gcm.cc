#include "transport/tcp/gcm.h"

#include <dlfcn.h>

#include <algorithm>
#include <string>

#include "digest/sha256.h"

namespace hvd::tcp {

namespace {

// openssl/evp.h
constexpr int kGetTag = 0x10;
constexpr int kSetTag = 0x11;
constexpr size_t kNonceBytes = 12;

// The seals of frames are made with the key of the link itself.
Key OwnKey(const Key& key) {
  constexpr char kLabel[] = "horovod records";
  return HmacSha256(key.data(), key.size()).Mac(kLabel, sizeof kLabel);
}

}  // namespace

// The functions of libcrypto, which have been the same from 1.1 on. Nothing is linked to it, so
// what is built here runs on machines without it.
struct Gcm::Library {
  const void* (*cipher)();
  void* (*make)();
  void (*free)(void* context);
  int (*begin)(void* context, const void* cipher, void* engine, const void* key, const void* nonce,
               int seals);
  int (*add)(void* context, void* out, int* bytes, const void* in, int in_bytes);
  int (*end)(void* context, void* out, int* bytes);
  int (*control)(void* context, int what, int bytes, void* data);
  std::string missing;
};

Status Gcm::Load(const Library** out) {
  static const Library& library = *[] {
    auto* loaded = new Library{};
    void* file = nullptr;
    for (const char* name : {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"}) {
      if (file == nullptr) file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (file == nullptr) {
      loaded->missing = "libcrypto.so.3 cannot be loaded";
      return loaded;
    }
    const auto find = [&](const char* name, auto* function) {
      void* const found = dlsym(file, name);
      if (found == nullptr) loaded->missing = std::string("libcrypto has no ") + name;
      *reinterpret_cast<void**>(function) = found;
    };
    find("EVP_aes_256_gcm", &loaded->cipher);
    find("EVP_CIPHER_CTX_new", &loaded->make);
    find("EVP_CIPHER_CTX_free", &loaded->free);
    find("EVP_CipherInit_ex", &loaded->begin);
    find("EVP_CipherUpdate", &loaded->add);
    find("EVP_CipherFinal_ex", &loaded->end);
    find("EVP_CIPHER_CTX_ctrl", &loaded->control);
    return loaded;
  }();
  *out = &library;
  if (library.missing.empty()) return Status::Ok();
  return {Code::kUnavailable, "HOROVOD_ENCRYPT=1 takes OpenSSL's libcrypto, and " +
                                  library.missing + " here. Install OpenSSL 3 on this machine."};
}

Status Gcm::Make(Way way, const Key& key, std::unique_ptr<Gcm>* out) {
  const Library* library;
  HVD_RETURN_IF_ERROR(Load(&library));
  out->reset(new Gcm(*library, way, OwnKey(key)));
  if ((*out)->sound_) return Status::Ok();
  return Status::Internal("libcrypto makes no AES-256-GCM");
}

Gcm::Gcm(const Library& library, Way way, const Key& key)
    : call_(library),
      context_(library.make()),
      sound_(context_ != nullptr && call_.begin(context_, call_.cipher(), nullptr, key.data(),
                                                nullptr, way == Way::kSeal ? 1 : 0) == 1) {}

Gcm::~Gcm() { call_.free(context_); }

void Gcm::Begin(const void* header, size_t bytes) {
  uint8_t nonce[kNonceBytes] = {};
  for (size_t i = 0; i < sizeof number_; ++i)
    nonce[kNonceBytes - 1 - i] = static_cast<uint8_t>(number_ >> (8 * i));
  ++number_;
  int none;
  sound_ = sound_ && call_.begin(context_, nullptr, nullptr, nullptr, nonce, /*seals=*/-1) == 1 &&
           call_.add(context_, nullptr, &none, header, static_cast<int>(bytes)) == 1;
}

void Gcm::Add(const std::byte* in, size_t bytes, std::byte* out) {
  int done;
  if (bytes > 0)
    sound_ = sound_ && call_.add(context_, out, &done, in, static_cast<int>(bytes)) == 1;
}

bool Gcm::Seal(std::byte* seal) {
  int none;
  sound_ = sound_ && call_.end(context_, seal, &none) == 1 &&
           call_.control(context_, kGetTag, kSealBytes, seal) == 1;
  return sound_;
}

bool Gcm::Opens(const std::byte* seal) {
  std::byte expected[kSealBytes];
  std::copy_n(seal, kSealBytes, expected);
  std::byte nothing[kSealBytes];
  int none;
  sound_ = sound_ && call_.control(context_, kSetTag, kSealBytes, expected) == 1 &&
           call_.end(context_, nothing, &none) == 1;
  return sound_;
}

}  // namespace hvd::tcp
