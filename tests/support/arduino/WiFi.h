// The Wi-Fi of this machine is always connected; a client is a socket.
#pragma once

#include <Arduino.h>
#include <netdb.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WL_CONNECTED = 3, WIFI_STA = 1 };

class LinuxWiFi {
 public:
  void mode(int) {}
  void setAutoReconnect(bool) {}
  void begin(const char*, const char*) {}
  int status() { return WL_CONNECTED; }
  int32_t RSSI() { return -50; }
  String macAddress() { return getenv("BOARD_MAC"); }
};
inline LinuxWiFi WiFi;

class WiFiClient : public Client {
 public:
  int connect(const char* host, uint16_t port) override {
    stop();
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    addrinfo hints = {}, *found = NULL;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, service, &hints, &found) != 0) return 0;
    socket_ = socket(found->ai_family, SOCK_STREAM, 0);
    bool open = ::connect(socket_, found->ai_addr, found->ai_addrlen) == 0;
    freeaddrinfo(found);
    if (!open) stop();
    return open;
  }

  size_t write(const uint8_t* data, size_t length) override {
    ssize_t sent = socket_ < 0 ? -1 : send(socket_, data, length, MSG_NOSIGNAL);
    if (sent < 0) stop();
    return sent < 0 ? 0 : sent;
  }

  int available() override { return readable(0) ? waiting() : 0; }

  int read() override {
    uint8_t sign;
    if (socket_ >= 0 && recv(socket_, &sign, 1, 0) == 1) return sign;
    stop();
    return -1;
  }

  void stop() override {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

  uint8_t connected() override { return socket_ >= 0 && !(readable(0) && waiting() == 0); }

 protected:
  bool readable(int wait_ms) {
    pollfd asked = {socket_, POLLIN, 0};
    return socket_ >= 0 && poll(&asked, 1, wait_ms) > 0;
  }

  int waiting() {  // 0 at the end of the stream
    int count = 0;
    return ioctl(socket_, FIONREAD, &count) == 0 ? count : 0;
  }

  int socket_ = -1;
};
