// TLS by OpenSSL. As on a board, a server whose certificate is not from the authority, or for another host, is refused.
#pragma once

#include <WiFi.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace BearSSL {
struct X509List {
  explicit X509List(const char* pem) : pem(pem) {}
  const char* pem;
};
}  // namespace BearSSL

class WiFiClientSecure : public WiFiClient {
 public:
  void setCACert(const char* pem) { authority_ = pem; }
  void setTrustAnchors(const BearSSL::X509List* list) { authority_ = list->pem; }
  void setX509Time(time_t) {}

  int connect(const char* host, uint16_t port) override {
    if (!WiFiClient::connect(host, port)) return 0;
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    BIO* file = BIO_new_mem_buf(authority_, -1);
    X509* certificate = PEM_read_bio_X509(file, NULL, NULL, NULL);
    if (certificate) X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate);
    X509_free(certificate);
    BIO_free(file);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    tls_ = SSL_new(context);
    SSL_CTX_free(context);
    if (!X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_), host)) SSL_set1_host(tls_, host);
    SSL_set_fd(tls_, socket_);
    if (SSL_connect(tls_) == 1) return 1;
    stop();
    return 0;
  }

  size_t write(const uint8_t* data, size_t length) override {
    int sent = tls_ ? SSL_write(tls_, data, length) : -1;
    if (sent <= 0) stop();
    return sent <= 0 ? 0 : sent;
  }

  int available() override {
    if (!tls_) return 0;
    uint8_t sign;
    if (SSL_pending(tls_) == 0 && readable(0) && SSL_peek(tls_, &sign, 1) <= 0) stop();
    return tls_ ? SSL_pending(tls_) : 0;
  }

  int read() override {
    uint8_t sign;
    if (tls_ && SSL_read(tls_, &sign, 1) == 1) return sign;
    stop();
    return -1;
  }

  uint8_t connected() override {
    available();
    return tls_ != NULL;
  }

  void stop() override {
    if (tls_) SSL_free(tls_);
    tls_ = NULL;
    WiFiClient::stop();
  }

 private:
  SSL* tls_ = NULL;
  const char* authority_ = "";
};
