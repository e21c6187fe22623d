// What the example sketch uses of HTTPClient: one POST over a client that the sketch gives it, which stays open afterwards, as on a
// board.
#pragma once

#include <WiFi.h>

class HTTPClient {
 public:
  void setTimeout(uint16_t) {}

  bool begin(WiFiClient& client, const String& url) {
    client_ = &client;
    const char *host = strstr(url.c_str(), "://"), *scheme = url.c_str();
    if (host == NULL) return false;
    port_ = strncmp(scheme, "https", 5) == 0 ? 443 : 80;
    host += 3;
    size_t length = strcspn(host, ":/");
    host_ = String(host, length);
    if (host[length] == ':') port_ = atoi(host + length + 1);
    const char* path = strchr(host, '/');
    path_ = String(path == NULL ? "/" : path);
    return true;
  }

  void addHeader(const String& name, const String& value) { headers_ += name + ": " + value + "\r\n"; }

  int POST(uint8_t* body, size_t length) {
    if (!client_->connect(host_.c_str(), port_)) return -1;
    String head = String("POST ") + path_ + " HTTP/1.1\r\nHost: " + host_ + "\r\n" + headers_ +
                  "Content-Length: " + String(std::to_string(length).c_str()) + "\r\n\r\n";
    client_->write((const uint8_t*)head.c_str(), head.length());
    client_->write(body, length);
    String line = readLine();
    int status = line.length() > 12 ? atoi(line.c_str() + 9) : -11;
    for (line = readLine(); line.length() > 0; line = readLine())
      if (strncasecmp(line.c_str(), "content-length:", 15) == 0) left_ = atoi(line.c_str() + 15);
    return status;
  }

  String getString() {
    String text;
    for (int sign; left_ > 0 && (sign = readSign()) >= 0; left_--) text += (char)sign;
    return text;
  }

  void end() {}

 private:
  int readSign() {
    for (uint32_t began = millis(); client_->available() <= 0;)
      if (!client_->connected() || millis() - began > 10000) return -1;
    return client_->read();
  }

  String readLine() {
    String line;
    for (int sign = readSign(); sign >= 0 && sign != '\n'; sign = readSign())
      if (sign != '\r') line += (char)sign;
    return line;
  }

  WiFiClient* client_ = NULL;
  String host_, path_, headers_;
  uint16_t port_ = 0;
  int left_ = 0;
};
