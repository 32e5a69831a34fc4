import { channel } from 'node:diagnostics_channel'

/**
 * A diagnostics channel whose messages have a type. Publishers check `hasSubscribers` before making an event, which is then
 * the only cost while nobody listens.
 */
export class EventChannel<Event> {
  readonly #channel

  constructor(name: `millrace:${string}`) {
    this.#channel = channel(name)
  }

  get hasSubscribers(): boolean {
    return this.#channel.hasSubscribers
  }

  publish(event: Event): void {
    this.#channel.publish(event)
  }

  /** Listens until disposed. A listener must not throw: that would end the process. */
  subscribe(listener: (event: Event) => void): Disposable {
    const onMessage = (message: unknown): void => listener(message as Event)
    this.#channel.subscribe(onMessage)
    return {
      [Symbol.dispose]: () => {
        this.#channel.unsubscribe(onMessage)
      },
    }
  }
}
