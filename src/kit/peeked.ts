/**
 * The items of a source, with the first one read already: a broken source shows before anything depends on it. Disposing of
 * the result lets go of the source, whether or not it was read.
 */
export async function peeked<T>(source: AsyncIterable<T>): Promise<AsyncIterable<T> & AsyncDisposable> {
  const iterator = source[Symbol.asyncIterator]()
  let first: IteratorResult<T> | undefined = await iterator.next()
  return {
    [Symbol.asyncIterator]: () => ({
      next: () => {
        const result = first ?? iterator.next()
        first = undefined
        return Promise.resolve(result)
      },
      return: async () => (await iterator.return?.()) ?? { done: true, value: undefined },
    }),
    [Symbol.asyncDispose]: async () => void (await iterator.return?.()),
  }
}
