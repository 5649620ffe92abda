package org.apache.kafka.common.utils;

import java.util.function.Supplier;

/**
 * Kafka's clock (its class of this name), ahead by the system property `eoctl.clock.ahead.ms`.
 *
 * It stands before Kafka's jars in the class path of a lab's broker. Only the time of day differs:
 * what is measured between two moments (nanoseconds, waiting) is as it was.
 */
class SystemTime implements Time {
    private static final SystemTime SYSTEM_TIME = new SystemTime();
    private static final long AHEAD = Long.getLong("eoctl.clock.ahead.ms", 0L);

    public static SystemTime getSystemTime() {
        return SYSTEM_TIME;
    }

    @Override
    public long milliseconds() {
        return System.currentTimeMillis() + AHEAD;
    }

    @Override
    public long nanoseconds() {
        return System.nanoTime();
    }

    @Override
    public void sleep(long ms) {
        Utils.sleep(ms);
    }

    @Override
    public void waitObject(Object lock, Supplier<Boolean> condition, long deadlineMs)
            throws InterruptedException {
        synchronized (lock) {
            while (!condition.get()) {
                long left = deadlineMs - milliseconds();
                if (left <= 0) {
                    throw new org.apache.kafka.common.errors.TimeoutException("Condition not satisfied before deadline");
                }
                lock.wait(left);
            }
        }
    }

    private SystemTime() {
    }
}
