import type { SimulatorServer } from '../../../src/simulator/index.ts'
import type { Talk } from './scripted-conversation.ts'
import { type Received, pixel } from './api-clients.ts'

/** What a client asked and what came of it. */
export interface Question {
  /** The conversation up to the reply. */
  readonly said: readonly string[]
  /** Every time it was heard to its end. Nothing if the client left before that. */
  readonly received: readonly Received[]
}

/** What the simulator thinks aloud at the beginning of every reply: once it is there, something was sampled. */
const firstWord = 'Let'

/**
 * A client that behaves as agents do at their worst: goes on, goes back, rewrites what was said, asks twice, sends a request
 * again because it did not wait for the answer, and leaves in the middle of a stream.
 */
export class HistoryRewritingClient {
  readonly questions: Question[] = []
  readonly #talk: Talk
  readonly #simulator: SimulatorServer
  readonly #random: () => number
  readonly #sendsPictures: boolean
  #asked = 0

  constructor(talk: Talk, simulator: SimulatorServer, random: () => number, sendsPictures = true) {
    this.#talk = talk
    this.#simulator = simulator
    this.#random = random
    this.#sendsPictures = sendsPictures
  }

  /** Each kind of thing twice, in an order of its own. */
  async run(): Promise<void> {
    // All clients that run together begin with the same words.
    await this.#goOn('Look up the first word, please.')
    const actions = [
      () => this.#goOn(this.#text()),
      () => this.#askTwice(),
      () => this.#retry(),
      () => this.#join(),
      () => this.#rewrite(),
      () => this.#goBack(),
      () => this.#leave(),
    ]
    for (const act of this.#shuffled([...actions, ...actions])) {
      if (this.#chance(0.2)) this.#simulator.simulator.change({ weightVersion: `v${this.#below(5)}` })
      await act()
    }
  }

  async #goOn(text: string): Promise<void> {
    this.#speak(text)
    await this.#ask()
  }

  /** The same question to the same model, which may answer otherwise. */
  async #askTwice(): Promise<void> {
    this.#speak(this.#text())
    await this.#ask({ takes: false })
    await this.#ask()
  }

  /** The same request, because the answer was lost: it must be the same answer. */
  async #retry(): Promise<void> {
    this.#speak(this.#text())
    const asking = this.#asking()
    const first = await this.#talk.ask(asking)
    const again = await this.#talk.ask({ ...asking, retry: 1 })
    this.#note([first, again])
    this.#talk.take(again)
  }

  /** The same request while the first is still being answered. */
  async #join(): Promise<void> {
    this.#speak(this.#text())
    const asking = { ...this.#asking(), stream: true }
    let second: Promise<Received> | undefined
    const first = await this.#talk.ask({
      ...asking,
      onPiece: () => (second ??= this.#talk.ask({ ...asking, stream: true, retry: 1 })),
    })
    this.#note(second ? [first, await second] : [first])
    this.#talk.take(first)
  }

  /** Another word where a user spoke; everything after it is then history that was never sampled. */
  async #rewrite(): Promise<void> {
    const places = this.#talk.userSteps()
    const place = places[this.#below(places.length)]
    if (place !== undefined) this.#talk.rewrite(place, this.#text())
    await this.#goOn(this.#text())
  }

  async #goBack(): Promise<void> {
    const [first = 0] = this.#talk.userSteps()
    this.#talk.back(Math.min(this.#talk.length - first - 1, this.#below(4)))
    await this.#goOn(this.#text())
  }

  async #leave(): Promise<void> {
    this.#speak(this.#text())
    const { body } = await this.#talk.send({ ...this.#asking(), stream: true })
    // Where a client leaves is chance; that it has heard something is not.
    const enough = this.#below(200)
    let text = ''
    for await (const piece of body.setEncoding('utf8') as AsyncIterable<string>) {
      text += piece
      if (text.includes(firstWord) && text.length >= enough) break
    }
    this.#note([])
  }

  #speak(text: string): void {
    if (this.#talk.openCalls.length > 0) this.#talk.results([text])
    else this.#talk.user(text, this.#chance(0.2) && this.#sendsPictures ? pixel : undefined)
  }

  async #ask({ takes = true } = {}): Promise<void> {
    const received = await this.#talk.ask(this.#asking())
    this.#note([received])
    if (takes) this.#talk.take(received)
  }

  /** No two have the same seed, so that no two samples are the same by chance. */
  #asking(): { stream: boolean; seed: number } {
    this.#asked += 1
    return { stream: this.#chance(0.5), seed: this.#asked * 1000 + this.#below(1000) }
  }

  #note(received: readonly Received[]): void {
    this.questions.push({ said: this.#talk.said, received })
  }

  #shuffled<Value>(values: readonly Value[]): Value[] {
    return values
      .map((value) => ({ value, at: this.#random() }))
      .sort((one, other) => one.at - other.at)
      .map(({ value }) => value)
  }

  #text(): string {
    return `word ${this.#below(1_000_000)} ünd 🙂`
  }

  #chance(share: number): boolean {
    return this.#random() < share
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit)
  }
}
