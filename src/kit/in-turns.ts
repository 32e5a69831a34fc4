import { setImmediate as nextTurn } from 'node:timers/promises'

/** After so many the loop is left to others for a turn. */
const perTurn = 256

/** All of them, for a list that is long and read without waiting, as from the database. */
export async function* inTurns<Item>(items: Iterable<Item>): AsyncGenerator<Item, void, void> {
  let count = 0
  for (const item of items) {
    yield item
    count += 1
    if (count % perTurn === 0) await nextTurn()
  }
}
