// Handles that callers hold: numbers that are checked at each call, so that a wrong one is an error and not a crash.
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "abi.h"

template <class T> class Handles {
  public:
    Handle add(std::shared_ptr<T> object) {
        Handle h = reinterpret_cast<Handle>(object.get());
        std::lock_guard lock(mu_);
        live_[h] = std::move(object);
        return h;
    }
    std::shared_ptr<T> get(Handle h) {
        std::lock_guard lock(mu_);
        auto it = live_.find(h);
        return it == live_.end() ? nullptr : it->second;
    }
    // take ends the handle and returns what it named, or null.
    std::shared_ptr<T> take(Handle h) {
        std::lock_guard lock(mu_);
        auto it = live_.find(h);
        if (it == live_.end())
            return nullptr;
        auto object = std::move(it->second);
        live_.erase(it);
        return object;
    }
    std::vector<std::shared_ptr<T>> all() {
        std::lock_guard lock(mu_);
        std::vector<std::shared_ptr<T>> list;
        for (auto &[h, object] : live_)
            list.push_back(object);
        return list;
    }

  private:
    std::mutex mu_;
    std::unordered_map<Handle, std::shared_ptr<T>> live_;
};
