import { defineEnvironment, judge, keepToolResults, z } from 'millrace'

const places = ['abbey', 'castle', 'college', 'library', 'museum', 'palace', 'school', 'villa'] as const
const towns = ['Arden', 'Belmont', 'Corin', 'Dunmore', 'Elsinore', 'Forres', 'Glamis', 'Harfleur', 'Inverness'] as const
const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'

type Task = { readonly book: string; readonly hops: number; readonly year: number }

const placeOf = (book: string, hop: number): string => {
  const number = letters.indexOf(book[0] ?? '') * 5 + hop * 7
  return `the ${places[number % places.length]} of ${towns[number % towns.length]}`
}

/** A long page, of which one sentence matters. Only the last page has the year. */
function pageOf({ book, hops, year }: Task, hop: number): string {
  const here = placeOf(book, hop)
  const end = hop < hops ? `It was sold to ${placeOf(book, hop + 1)}: see ${book}-${hop + 1}.` : `It came in ${year}.`
  const shelves = `The shelves of ${here} are of oak, and its windows look to the river. `.repeat(20)
  return `${shelves}Here, too, was the book of hours ${book} for a while. ${end}`
}

/** A trail of pages to follow: most of what was read is no longer needed, so it is not sent again. A judge scores the answer. */
export default defineEnvironment({
  name: 'trail',
  description: 'Follow a book from owner to owner; old pages leave the context',
  options: z.object({ hops: z.coerce.number().int().positive().default(12) }),
  task: z.object({ book: z.string(), hops: z.number(), year: z.number() }),
  tasks: ({ hops }) =>
    Array.from({ length: 100 }, (_, index) => ({
      book: `${letters[index % letters.length]}${index}`,
      hops: hops + (index % 4),
      year: 1600 + ((index * 37) % 300),
    })),

  prompt: ({ task: { book } }) => `In which year did the book of hours ${book} come to its last owner?

Search for "${book}", and follow the pages from owner to owner. Then reply with one sentence.`,

  tools: {
    search: {
      description: 'Lists the page on which to begin.',
      parameters: z.object({ query: z.string() }),
      resume: 'reuse',
      run: ({ query }, { task }) => (query.includes(task.book) ? `- ${task.book}-0` : 'Nothing is known of it.'),
    },
    read: {
      description: 'Reads a page by its id.',
      parameters: z.object({ id: z.string() }),
      resume: 'reuse',
      run: ({ id }, { task }) => {
        const hop = Number(id.split('-').at(-1))
        if (id !== `${task.book}-${hop}` || hop > task.hops) throw new Error(`there is no page ${id}`)
        return pageOf(task, hop)
      },
    },
  },

  // The last two to three pages are sent; older ones are a line.
  contextPolicy: keepToolResults(2, { every: 2 }),

  reward: {
    right: judge({
      question: ({ task }) => `In which year did the book of hours ${task.book} come to its last owner?`,
      reference: ({ task }) => String(task.year),
      rubric: 'The answer must name the year of the reference.',
    }),
    pages: { weight: 0, score: ({ messages }) => messages.filter(({ role }) => role === 'tool').length - 1 },
  },
})
