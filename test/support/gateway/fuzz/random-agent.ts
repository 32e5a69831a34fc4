import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Caller } from '../../../../src/gateway/index.ts'
import type { OpenGateway } from '../open-gateway.ts'
import type { RecordingClient } from '../recording-client.ts'
import type { ApiName, JsonObject } from '../../../../src/schema/index.ts'
import type { Chance } from './fuzz.ts'
import { readEvents, readEventsSoFar, readObject } from '../stream-events.ts'
import { Talk } from '../scripted-conversation.ts'
import { apiClients, type Received } from '../api-clients.ts'

/** A reply that a client has got to its end, and all that led to it. */
export interface ReceivedReply {
  readonly received: Received
  readonly said: readonly string[]
}

export interface RandomAgentOptions {
  readonly name: string
  readonly api: ApiName
  readonly caller: Caller
  readonly chance: Chance
  /** How many requests the backend has got, of whomever. */
  readonly asked: () => number
  /** The one that is open just now. */
  readonly gateway: () => OpenGateway
}

const nobody = { open: () => Promise.reject(new Error('nobody asks here')) }

/** One conversation of an agent that does anything: also in the middle of a reply, and at its very end. */
export class RandomAgent {
  readonly replies: ReceivedReply[] = []
  /** Whose words it has used, though it did not wait for their end. */
  readonly overheard = new Set<string>()
  readonly #options: RandomAgentOptions
  readonly #talk: Talk
  #words = 0
  /** The reply that the conversation ends with, if it does. */
  #last: string | undefined

  constructor(options: RandomAgentOptions) {
    this.#options = options
    this.#talk = new Talk(nobody, { key: '' }, apiClients[options.api], { system: `You are ${options.name[0]}.` })
  }

  async step(): Promise<void> {
    const { chance, api } = this.#options
    const actions = [
      () => this.#goOn(),
      () => this.#goOn(),
      () => this.#askTwice(),
      () => this.#retry(),
      () => this.#join(),
      () => this.#leave(),
      () => this.#leave(),
      () => this.#rewrite(),
      () => this.#goBack(),
      () => (api === 'responses' ? this.#goOnByName() : this.#goOn()),
    ]
    await chance.pick(actions)()
  }

  async #goOn(): Promise<void> {
    this.#speak()
    this.#take(await this.#ask(this.#body()))
  }

  /** What was said before is only named. */
  async #goOnByName(): Promise<void> {
    const previous = this.#last
    this.#speak()
    const body = this.#body()
    if (previous !== undefined) {
      body['previous_response_id'] = previous
      body['input'] = (body['input'] as unknown[]).slice(-1) as JsonObject[]
    }
    this.#take(await this.#ask(body))
  }

  async #askTwice(): Promise<void> {
    this.#speak()
    const body = this.#body()
    const received = await Promise.all([this.#ask(body), this.#ask(body)])
    this.#take(this.#options.chance.pick(received))
  }

  async #retry(): Promise<void> {
    this.#speak()
    const body = this.#body()
    const before = this.#options.asked()
    const first = await this.#ask(body)
    const again = await this.#ask(body, 1)
    // The last 16 are remembered, those that are under way included.
    const isRemembered = this.#options.asked() - before < 10
    if (first && isRemembered && again?.id !== first.id) throw new Error(`a retry of ${first.id} got ${again?.id}`)
    this.#take(again)
  }

  async #join(): Promise<void> {
    this.#speak()
    const body = this.#body()
    const first = this.#ask(body)
    await this.#turns(4)
    const received = await Promise.all([first, this.#ask(body, 1)])
    this.#take(received[1])
  }

  /** Leaves at any moment, and then asks again, asks anew, goes on with what it has heard, or says something else. */
  async #leave(): Promise<void> {
    const { chance } = this.#options
    this.#speak()
    const body = this.#body()
    const { client, done } = this.#send(body)
    await this.#turns(40)
    client.leave()
    const received = this.#note(client)
    if (chance.is(0.5)) await done
    if (received) {
      this.#take(received)
      await done
      return
    }
    const afterwards = [
      async () => this.#take(await this.#ask(body, 1)),
      async () => this.#take(await this.#ask(body)),
      () => this.#goOnFrom(client),
      () => this.#rewrite(),
    ]
    await chance.pick(afterwards)()
    await done
  }

  async #goOnFrom(client: RecordingClient): Promise<void> {
    const events = readEventsSoFar(client.text)
    if (this.#options.api !== 'chat' || events.length === 0) return
    const received = this.#talk.apiClient.receivedStream(events)
    if (received.text === '') return
    this.overheard.add(received.id)
    this.#take(received)
    await this.#goOn()
  }

  async #rewrite(): Promise<void> {
    const places = this.#talk.userSteps()
    const place = places[this.#options.chance.below(places.length)]
    if (place !== undefined) this.#talk.rewrite(place, this.#text())
    await this.#goOn()
  }

  async #goBack(): Promise<void> {
    const places = this.#talk.userSteps()
    const place = places[this.#options.chance.below(places.length)]
    this.#talk.back(this.#talk.length - (place ?? 0))
    await this.#goOn()
  }

  #speak(): void {
    this.#last = undefined
    this.#talk.user(this.#text())
  }

  #text(): string {
    this.#words += 1
    return `${this.#options.name} asks ${this.#words}`
  }

  #take(received: Received | undefined): void {
    this.#last = received?.id
    if (received) this.#talk.take(received)
  }

  #body(): Record<string, JsonObject[string]> {
    return { ...this.#talk.body({ stream: this.#options.chance.is(0.6) }), model: 'm' }
  }

  #send(body: JsonObject, retryCount = 0): { readonly client: RecordingClient; readonly done: Promise<void> } {
    const { gateway, caller, api } = this.#options
    return gateway().send(caller, body, { api, retryCount })
  }

  /** Undefined if the backend broke off. */
  async #ask(body: JsonObject, retryCount?: number): Promise<Received | undefined> {
    const { client, done } = this.#send(body, retryCount)
    await done
    return this.#note(client)
  }

  /** What the client got, if that is a whole reply. */
  #note({ isEnded, status, text, eventCount }: RecordingClient): Received | undefined {
    if (!isEnded || status !== 200 || /"error":\s*\{/.test(text)) return undefined
    const { apiClient } = this.#talk
    const received = eventCount > 0 ? apiClient.receivedStream(readEvents(text)) : apiClient.received(readObject(text))
    this.replies.push({ received, said: this.#talk.said })
    return received
  }

  async #turns(limit: number): Promise<void> {
    for (let turns = this.#options.chance.below(limit); turns > 0; turns -= 1) await nextTurn()
  }
}
