// A client with the interface and the limits of the Arduino library PubSubClient 2.8: one buffer for both directions, a message that
// does not fit is dropped silently, publishes are QoS 0, and the callback's pointers lead into the buffer.
#pragma once

#include <Arduino.h>

class PubSubClient {
 public:
  typedef void (*Callback)(char*, uint8_t*, unsigned int);

  explicit PubSubClient(Client& client) : client_(client) { setBufferSize(256); }
  ~PubSubClient() { free(buffer_); }

  PubSubClient& setServer(const char* host, uint16_t port) {
    host_ = host;
    port_ = port;
    return *this;
  }
  PubSubClient& setCallback(Callback callback) {
    callback_ = callback;
    return *this;
  }
  PubSubClient& setKeepAlive(uint16_t seconds) {
    keepAliveS_ = seconds;
    return *this;
  }
  PubSubClient& setSocketTimeout(uint16_t seconds) {
    timeoutS_ = seconds;
    return *this;
  }
  bool setBufferSize(uint16_t size) {
    buffer_ = (uint8_t*)realloc(buffer_, size);
    size_ = size;
    return buffer_ != NULL;
  }

  bool connect(const char* id, const char* user, const char* password, const char* willTopic, uint8_t willQos, bool willRetain,
               const char* willMessage) {
    state_ = -2;
    if (!client_.connect(host_, port_)) return false;
    begin();
    putText("MQTT");
    put(4);
    put(0xC6 | willQos << 3 | willRetain << 5);
    putNumber(keepAliveS_);
    for (const char* text : {id, willTopic, willMessage, user, password}) putText(text);
    send(0x10);
    state_ = -4;
    if (!readPacket() || buffer_[0] != 0x20) return fail();
    state_ = buffer_[payload_ + 1];
    if (state_ != 0) return fail();
    lastIn_ = lastOut_ = millis();
    pinging_ = false;
    return true;
  }

  bool connected() {
    if (state_ == 0 && !client_.connected()) state_ = -3;
    return state_ == 0;
  }

  int state() { return state_; }

  bool publish(const char* topic, const char* payload, bool retained = false) {
    if (!connected() || strlen(topic) + strlen(payload) + 7 > size_) return false;
    begin();
    putText(topic);
    for (; *payload; payload++) put(*payload);
    return send(0x30 | (retained ? 1 : 0));
  }

  bool subscribe(const char* topic, uint8_t qos) {
    if (!connected() || qos > 1 || strlen(topic) + 10 > size_) return false;
    begin();
    putNumber(++packetId_ ? packetId_ : ++packetId_);
    putText(topic);
    put(qos);
    return send(0x82);
  }

  bool loop() {
    if (!connected()) return false;
    if (millis() - lastIn_ > keepAliveS_ * 1000u || millis() - lastOut_ > keepAliveS_ * 1000u) {
      if (pinging_) {
        state_ = -4;
        return fail();
      }
      begin();
      pinging_ = send(0xC0);
      lastIn_ = millis();
    }
    if (client_.available() > 0 && readPacket()) take();
    return connected();
  }

 private:
  void begin() { length_ = 5; }  // the packet's head goes before it
  void put(uint8_t sign) { buffer_[length_++] = sign; }
  void putNumber(uint16_t number) {
    put(number >> 8);
    put(number & 255);
  }
  void putText(const char* text) {
    putNumber(strlen(text));
    for (; *text; text++) put(*text);
  }

  bool send(uint8_t first) {
    uint16_t rest = length_ - 5;
    uint8_t head[3] = {first, (uint8_t)(rest & 127), (uint8_t)(rest >> 7)};
    uint8_t count = rest > 127 ? 3 : 2;
    if (count == 3) head[1] |= 128;
    memcpy(buffer_ + 5 - count, head, count);
    lastOut_ = millis();
    return client_.write(buffer_ + 5 - count, rest + count) == (size_t)(rest + count);
  }

  bool fail() {
    client_.stop();
    return false;
  }

  bool readSign(uint8_t* sign) {
    for (uint32_t began = millis(); client_.available() <= 0;)
      if (!client_.connected() || millis() - began > timeoutS_ * 1000u) return fail();
    *sign = client_.read();
    return true;
  }

  // False at the end of the connection, and for a packet that does not fit.
  bool readPacket() {
    uint32_t rest = 0;
    uint8_t sign;
    length_ = 0;
    if (!readSign(buffer_)) return false;
    length_ = 1;
    for (int shift = 0;; shift += 7) {
      if (shift > 21 || !readSign(&sign)) return fail();
      rest |= (uint32_t)(sign & 127) << shift;
      buffer_[length_++] = sign;
      if (sign < 128) break;
    }
    payload_ = length_;
    bool fits = length_ + rest <= size_;
    for (; rest > 0; rest--) {
      if (!readSign(&sign)) return false;
      if (fits) buffer_[length_++] = sign;
    }
    return fits;
  }

  void take() {
    lastIn_ = millis();
    if (buffer_[0] == 0xD0) pinging_ = false;
    if ((buffer_[0] & 0xF0) != 0x30 || !callback_) return;
    uint16_t topicLength = buffer_[payload_] << 8 | buffer_[payload_ + 1];
    char* topic = (char*)memmove(buffer_ + payload_ + 1, buffer_ + payload_ + 2, topicLength);  // room for the 0
    topic[topicLength] = 0;
    uint16_t at = payload_ + 2 + topicLength;
    bool confirm = buffer_[0] & 2;
    uint8_t ack[4] = {0x40, 2, buffer_[at], buffer_[at + 1]};
    if (confirm) at += 2;
    callback_(topic, buffer_ + at, length_ - at);
    if (confirm) client_.write(ack, 4);
  }

  Client& client_;
  Callback callback_ = NULL;
  uint8_t* buffer_ = NULL;
  const char* host_ = "";
  uint16_t size_ = 0, length_ = 0, payload_ = 0, port_ = 0, keepAliveS_ = 15, timeoutS_ = 15, packetId_ = 0;
  uint32_t lastIn_ = 0, lastOut_ = 0;
  bool pinging_ = false;
  int state_ = -1;
};
