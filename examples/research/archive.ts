/** What the two agents read: a register of each town of 1900, and a yearbook of each of 1950. The same every time. */

type Year = 1900 | 1950

interface Page {
  readonly id: string
  readonly title: string
  readonly text: string
}

const provinces = ['Arden', 'Belmont', 'Corin', 'Dunmore', 'Elsinore', 'Forres', 'Glamis', 'Harfleur'] as const
const [starts, ends] = [
  ['Ash', 'Brook', 'Clay', 'Dun', 'Elm', 'Fern', 'Glen', 'Hazel', 'Iron', 'Kings', 'Lang', 'Mill', 'North'],
  ['bury', 'combe', 'dale', 'field', 'ford', 'ham', 'hurst', 'leigh', 'mouth', 'ton', 'well', 'wick', 'worth'],
] as const

/** No more towns than there are names. */
export const maxTowns = starts.length * ends.length

export function provinceOf(index: number): string {
  const round = Math.floor(index / provinces.length)
  const name = provinces[index % provinces.length] ?? ''
  return round === 0 ? name : `${name} ${round + 1}`
}

/** Most towns grow, and some shrink. */
function peopleIn(province: number, town: number, year: Year): number {
  const people = 400 + ((province * 7919 + town * 104_729) % 9_000)
  return year === 1900 ? people : Math.round(people * (0.8 + ((province * 31 + town * 17) % 100) / 100))
}

export function peopleOfProvince(province: number, towns: number, year: Year): number {
  return Array.from({ length: towns }, (_, town) => peopleIn(province, town, year)).reduce(
    (sum, people) => sum + people,
  )
}

interface Shelf {
  readonly index: number
  readonly towns: number
  readonly year: Year
}

function pageOf(town: number, { index, year }: Shelf): Page {
  const book = year === 1900 ? 'register' : 'yearbook'
  const name = `${starts[town % starts.length]}${ends[Math.floor(town / starts.length)]}`
  const built = 1600 + ((town * 37 + index) % 290)
  const people = peopleIn(index, town, year)
  return {
    id: `${book}-${index}-${town + 1}`,
    title: `${name}, ${book} of ${year}`,
    text: `${name} is a town in ${provinceOf(index)}. Its mill was built in ${built}. Inhabitants in ${year}: ${people}. Market day is Thursday.`,
  }
}

const listed = 20

export function searchPages({ query, page }: { readonly query: string; readonly page: number }, shelf: Shelf): string {
  if (!query.toLowerCase().includes(provinceOf(shelf.index).toLowerCase())) {
    return `Nothing is known of "${query}". Search for the name of a province.`
  }
  const last = Math.ceil(shelf.towns / listed)
  if (page > last) throw new Error(`there is no page ${page}: the list has ${last}`)
  const first = (page - 1) * listed
  const shown = Array.from({ length: Math.min(listed, shelf.towns - first) }, (_, place) =>
    pageOf(first + place, shelf),
  )
  return [`Page ${page} of ${last}`, ...shown.map(({ id, title }) => `- ${id}: ${title}`)].join('\n')
}

export function readPage(id: string, shelf: Shelf): string {
  const town = Number(id.split('-').at(-1)) - 1
  const page = town >= 0 && town < shelf.towns ? pageOf(town, shelf) : undefined
  if (page?.id !== id) throw new Error(`there is no page ${id}: search for pages first`)
  return page.text
}
