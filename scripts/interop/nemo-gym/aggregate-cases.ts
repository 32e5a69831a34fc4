import { seededRandom } from '../../../src/kit/index.ts'

/** Bodies of `POST /aggregate_metrics` that differ in everything the formulas look at. The same seed makes the same bodies. */
export function* aggregateBodies(count: number, { seed = 1, maxTasks = 6 } = {}): Generator<string, void, void> {
  const dice = new Dice(seededRandom(seed))
  for (let index = 0; index < count; index += 1) {
    const responses = new Body(dice, maxTasks).responses()
    yield `{"verify_responses":[${dice.shuffled(responses).join(',')}]}`
  }
}

/** One body of so many rows, as a collector would send it. */
export function largeAggregateBody(rows: number, rolloutsPerTask = 8): string {
  const dice = new Dice(seededRandom(rows))
  const responses = Array.from({ length: rows }, (_, index) => {
    const place = `"_ng_task_index":${Math.floor(index / rolloutsPerTask)},"_ng_rollout_index":${index % rolloutsPerTask}`
    const usage = `"response":{"usage":{"input_tokens":${dice.below(4000)},"output_tokens":${dice.below(900)}}}`
    return `{${place},"reward":${dice.below(2)}.0,"score":${dice.next()},"agent_ref":{"name":"agent"},${usage}}`
  })
  return `{"verify_responses":[${responses.join(',')}]}`
}

class Dice {
  readonly next: () => number

  constructor(next: () => number) {
    this.next = next
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit)
  }

  hits(chance: number): boolean {
    return this.next() < chance
  }

  of<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)] as T
  }

  shuffled<T>(values: readonly T[]): T[] {
    const left = [...values]
    return values.map(() => left.splice(this.below(left.length), 1)[0] as T)
  }
}

type FieldKind = (dice: Dice) => string

const kinds: readonly FieldKind[] = [
  (dice) => String(dice.below(2)),
  (dice) => `${dice.below(2)}.0`,
  (dice) => dice.of(['true', 'false']),
  (dice) => String(dice.next()),
  (dice) => String(dice.next() * 10 ** (dice.below(9) - 4)),
  (dice) => String(dice.below(5000)),
  (dice) => `-${dice.next()}`,
  (dice) => dice.of(['0', '1', '0.5', '1.0', 'true', '0.25']),
  (dice) => dice.of(['null', '1', '2.5']),
  (dice) => dice.of(['NaN', '1', '2.5', '7']),
  (dice) => dice.of(['"text"', '3', '[1]', '{"a":1}']),
  // Far apart, because a histogram that NeMo Gym makes of them, and then drops, must not fail.
  (dice) => dice.of(['0', '1152921504606846977', '4611686018427387905']),
  (dice) => dice.of(['0', '1', '9007199254740993000']),
  (dice) => dice.of(['0', '9223372036854775809']),
]

class Body {
  readonly #dice: Dice
  readonly #maxTasks: number
  readonly #reward: FieldKind
  readonly #fields: readonly { readonly name: string; readonly kind: FieldKind; readonly chance: number }[]
  readonly #usage: readonly string[]
  readonly #hasAnswers: boolean
  readonly #hasDifficulty: boolean
  readonly #hasGaps: boolean

  constructor(dice: Dice, maxTasks: number) {
    this.#dice = dice
    this.#maxTasks = maxTasks
    this.#hasGaps = dice.hits(0.4)
    this.#reward = dice.of(kinds.slice(0, 8))
    // Bodies without decimals anywhere are the only ones whose largest values stay integers.
    const choices = dice.hits(0.2)
      ? [kinds[0], kinds[2], kinds[5], kinds[11]].filter((kind) => kind !== undefined)
      : kinds
    this.#fields = ['score', 'é/b', 'turns', 'mean', 'judged'].slice(0, dice.below(6)).map((name) => ({
      name,
      kind: dice.of(choices),
      chance: this.#hasGaps ? dice.of([1, 0.9, 0.5, 0.1]) : 1,
    }))
    this.#usage = ['input_tokens', 'output_tokens', 'score'].slice(0, dice.below(4))
    this.#hasAnswers = dice.hits(0.4)
    this.#hasDifficulty = dice.hits(0.3)
  }

  responses(): string[] {
    const dice = this.#dice
    const tasks = dice.below(this.#maxTasks) + 1
    const most = dice.of([1, 2, 4, 9, 20])
    const isEqual = dice.hits(0.5)
    return Array.from({ length: tasks }, (_, task) => {
      const rollouts = isEqual ? most : dice.below(most) + 1
      const difficulty = dice.of(['"easy"', '"hard"', '"é"', '""', 'null'])
      return Array.from({ length: rollouts }, (__, rollout) => this.#response(task * 3, rollout, difficulty))
    }).flat()
  }

  #response(task: number, rollout: number, difficulty: string): string {
    const dice = this.#dice
    const members = [`"_ng_task_index":${task}`, `"_ng_rollout_index":${rollout}`]
    if (!this.#hasGaps || dice.hits(0.95)) members.push(`"reward":${this.#reward(dice)}`)
    for (const { name, kind, chance } of this.#fields) {
      if (dice.hits(chance)) members.push(`${JSON.stringify(name)}:${kind(dice)}`)
    }
    if (this.#hasAnswers && dice.hits(0.9)) {
      members.push(`"extracted_answer":${dice.of(['"a"', '"b"', '"c"', 'null', '1', '1.0', 'true'])}`)
    }
    if (this.#hasDifficulty) members.push(`"difficulty":${difficulty}`)
    members.push(`"agent_ref":{"name":"${dice.of(['one', 'two'])}"}`)
    if (this.#usage.length > 0 && dice.hits(0.95)) members.push(this.#usageOf())
    return `{${members.join(',')}}`
  }

  #usageOf(): string {
    const counts = this.#usage.map((name) => `"${name}":${this.#dice.below(9000)}`)
    return `"response":{"usage":{${[...counts, '"details":{"cached":1}'].join(',')}}}`
  }
}
