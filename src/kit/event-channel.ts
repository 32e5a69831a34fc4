import { channel } from 'node:diagnostics_channel'

/**
 * A diagnostics channel whose messages have a type. What it costs while nobody listens is a look at `hasSubscribers`, so
 * whoever publishes asks that before making the event.
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

  /** Listens until disposed. What a listener throws ends the process: it must not. */
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
